#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <span>
#include <vector>

#include "base/parameter_spec.hpp"
#include "model/architecture/config.hpp"
#include "model/architecture/layer_layout.hpp"
#include "model/gradient.hpp"
#include "model/layer_activations.hpp"
#include "model/recompute.hpp"

namespace mpzero::model {

class Matmuls;
class RopeTable;

// A unit's weights in the order of its UnitSpec: contiguous views that lie one behind another in the unit's flat
// buffer. The decoder relies on it: it multiplies with queries, keys and values at once, and with gate and up at once,
// through one view over their storage; views that are not adjacent throw Failure.
using Weights = std::span<const at::Tensor>;
// Where the gradients of a unit's weights go, in the same order. Views that are adjacent like the weights get the
// weight gradients of such a group from one matrix product; others work, with one product for each.
using Gradients = std::span<Gradient>;

struct DecoderOptions {
  // The most logits that head_loss and head_forward_backward hold at a time, over all tokens of a chunk; 0: 5 * 2^28
  // on a GPU (2.5 GiB in bf16), 2^23 on a CPU.
  int64_t max_logits = 0;
};

// A decoder-only language model as units that are run one by one: the embedding, each decoder layer, the head. It owns
// no weights: whoever calls it gathers them, and hands over where gradients go. B: micro-batch, T: sequence length, H:
// hidden size, V: vocabulary. Weights and activations have one dtype (fp64, fp32 or bf16) and device. No autograd: call
// it with tensors that require no gradient. Under at::globalContext().setDeterministicAlgorithms it repeats bit for bit
// on the GPU too (without, matrix products are tuned when their shapes are first met); on the CPU it always does.
class Decoder {
 public:
  explicit Decoder(ModelConfig config, DecoderOptions options = {});

  const ModelConfig& config() const { return config_; }

  // The embedding, the layers, the head; in the order of the forward pass. With a tied head the head's unit holds the
  // final norm only and the logits use the embedding's weight.
  const std::vector<UnitSpec>& units() const { return units_; }
  size_t embedding_unit() const { return 0; }
  size_t layer_unit(int64_t layer) const { return static_cast<size_t>(layer) + 1; }
  size_t head_unit() const { return units_.size() - 1; }
  bool tied_head() const { return config_.tie_word_embeddings; }

  // tokens [B, T] int64 -> [B, T, H] in the weights' dtype.
  at::Tensor embed_forward(Weights embedding, const at::Tensor& tokens) const;
  // Adds the embedding's gradient. dy: [B, T, H].
  void embed_backward(const at::Tensor& dy, const at::Tensor& tokens, Gradients embedding) const;

  // x: [B, T, H] -> [B, T, H]. `activations`: null when no backward will follow (validation); else receives what
  // `recompute` says, and layer_backward makes the rest again. Layers of one model may differ in it.
  at::Tensor layer_forward(Weights layer, const at::Tensor& x, LayerActivations* activations,
                           Recompute recompute = Recompute::kNone) const;
  // dy: [B, T, H] -> dx [B, T, H]. Frees `activations`.
  at::Tensor layer_backward(Weights layer, const at::Tensor& dy, LayerActivations& activations,
                            Gradients gradients) const;

  // Mean cross-entropy over all B*T targets, fp32 scalar on the device of x (fp64 for fp64). `output_weight` [V, H] is
  // head[1], or the embedding's weight when the head is tied; `targets` [B, T] int64.
  at::Tensor head_loss(Weights head, const at::Tensor& output_weight, const at::Tensor& x,
                       const at::Tensor& targets) const;

  struct HeadResult {
    at::Tensor loss;  // as head_loss: not scaled
    at::Tensor dx;    // [B, T, H], of loss * loss_scale
  };
  // Loss and backward at once, in chunks of tokens, so that no [B*T, V] tensor in fp32 ever exists. Gradients are those
  // of loss * loss_scale. `head_gradients` are those of the head's unit; `output_weight_gradient` is head_gradients[1],
  // or the embedding's when the head is tied.
  HeadResult head_forward_backward(Weights head, const at::Tensor& output_weight, const at::Tensor& x,
                                   const at::Tensor& targets, double loss_scale, Gradients head_gradients,
                                   Gradient& output_weight_gradient) const;

  // Bytes that the LayerActivations of one layer keep alive from forward to backward, its input among them: batch
  // sequences of `length` tokens, for weights and activations of this type. The attention kernel that will be used
  // counts (at::globalContext().deterministicAlgorithms()).
  int64_t activation_bytes(Recompute recompute, int64_t batch, int64_t length, at::Device device,
                           at::ScalarType type) const;
  // An estimate of the most bytes of temporaries, beside the kept activations of all layers, while the head or one
  // layer's backward runs: chunks of logits, gradients of activations, activations made again, what kernels work in.
  // Gradients of weights are not among them.
  int64_t workspace_bytes(int64_t batch, int64_t length, at::Device device, at::ScalarType type,
                          Recompute recompute = Recompute::kNone) const;

  // How long tuning matrix products has taken so far; most of it falls into the first step.
  double tuning_seconds() const;

  // How many of `tokens` tokens head_loss and head_forward_backward take at a time on this device.
  int64_t tokens_per_chunk(int64_t tokens, at::Device device) const;

 private:
  ModelConfig config_;
  DecoderOptions options_;
  std::vector<UnitSpec> units_;
  LayerLayout layout_;
  std::shared_ptr<Matmuls> matmuls_;
  std::shared_ptr<RopeTable> rope_;
};

}  // namespace mpzero::model
