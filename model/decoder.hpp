#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/parameter_spec.hpp"
#include "model/architecture/config.hpp"
#include "model/architecture/layer_layout.hpp"
#include "model/gradient.hpp"
#include "model/kernels/dropout.hpp"
#include "model/layer_activations.hpp"
#include "model/layer_casts.hpp"

namespace mpzero::model {

class LayerAdapters;
class Matmuls;
class RopeTable;

// A unit's weights in the order of its UnitSpec: adjacent views of the unit's flat buffer. The decoder computes
// queries, keys and values in one product, and gate and up in one product, through one view over their storage. Throws
// Failure if those views are not adjacent.
struct Weights : std::span<const at::Tensor> {
  using std::span<const at::Tensor>::span;
  // NOLINTNEXTLINE(google-explicit-constructor): they are tensors.
  Weights(std::span<const at::Tensor> tensors) : span(tensors) {}

  // `layer`: the layer's index, required with FP8, dropout or layers that do not rotate. `version`, for FP8: if the
  // tensors keep their addresses until their values change, a number that changes with the values, so that casts are
  // reused.
  std::optional<int64_t> layer = {};
  std::optional<uint64_t> version = {};
  // For a layer whose FP8 weights are already quantized to e4m3: fp32 [2, FP8 products], in the order of LayerProduct:
  // each weight's largest magnitude before the cast, and its dequantization scale.
  at::Tensor scales = {};
};
// Destinations of the gradients of a unit's weights, in the same order. If the views of such a group are adjacent like
// the weights, one matrix product computes their gradients; otherwise one product per weight.
using Gradients = std::span<Gradient>;

struct DecoderOptions {
  // The maximum number of logits that head_loss and head_forward_backward allocate at a time, over all tokens of a
  // chunk; 0: 5 * 2^28 on a GPU (2.5 GiB in bf16), 2^27 on a CPU.
  int64_t max_logits = 0;
  // The maximum number of tokens, over all sequences, in an MLP tile with Recompute::kTiled or kHost.
  int64_t mlp_tile = 8192;
  // FP8 layers; weights and activations are bf16.
  std::optional<Fp8Options> fp8 = {};
};

// A micro-batch of B sequences of T tokens on one device. Without a mask all targets have weight 1; without documents
// each sequence is one document.
struct Batch {
  at::Tensor tokens;          // [B, T] int64; for an encoder-decoder, the decoder's input
  at::Tensor targets;         // [B, T] int64
  at::Tensor loss_mask = {};  // [B, T] fp32: the targets' loss weights
  // Documents packed into one sequence; requires B = 1.
  std::shared_ptr<const Documents> documents = nullptr;
  at::Tensor source = {};  // [B, S] int64: the encoder's input, padded at the end
  // With sequence parallelism, tokens, targets and loss mask are this rank's part of the sequences.
  std::shared_ptr<const SequenceExchange> ranks = nullptr;
  // Training only; validation and generation have no dropout.
  std::optional<DropoutSeed> dropout = {};
};

// The values that pass between units, and their gradients.
using Values = std::vector<at::Tensor>;
// Indices of the values that a layer reads and writes. If several layers read a value, their gradients are summed.
struct LayerValues {
  std::vector<size_t> inputs, outputs;
};

// A language model as units that run one by one: the embedding, each layer, the head. Values and layers form a graph;
// for a decoder-only model, a chain. Owns no weights: the caller gathers them and passes the destinations of the
// gradients. B: micro-batch, T: sequence length, H: hidden size, V: vocabulary. Weights and activations have one dtype
// (fp64, fp32 or bf16) and device. No autograd: pass tensors that require no gradient. Bits are reproducible on the GPU
// under at::globalContext().setDeterministicAlgorithms (otherwise matrix products are tuned when a shape is first
// used), and always on the CPU. SimulatedDecoder overrides the virtual functions.
class Decoder {
 public:
  explicit Decoder(ModelConfig config, DecoderOptions options = {});
  virtual ~Decoder() = default;

  const ModelConfig& config() const { return config_; }

  // The embedding, the layers, the head, in the order of the forward pass. With a tied head, the head's unit contains
  // the final norm only and the logits use the embedding's weight.
  const std::vector<UnitSpec>& units() const { return units_; }
  size_t embedding_unit() const { return 0; }
  size_t layer_unit(int64_t layer) const { return static_cast<size_t>(layer) + 1; }
  size_t head_unit() const { return units_.size() - 1; }
  bool tied_head() const { return config_.tie_word_embeddings; }
  // The order in which a forward pass, and a step of forward and backward passes, use the units' weights. The
  // embedding's backward needs no weights; the head runs both passes at once.
  std::vector<size_t> forward_order() const;
  std::vector<size_t> training_order(int64_t micro_batches) const;

  // Inputs and outputs of each layer, in forward order. embed() writes the first values, and the head reads the last
  // layer's first output. The backward pass runs in reverse order.
  virtual std::vector<LayerValues> graph() const;
  virtual Values embed(Weights embedding, const Batch& batch) const;
  virtual void add_embedding_gradient(const Values& d_values, const Batch& batch, Gradients embedding) const;
  // Dropout of the final norm's output.
  virtual Dropout head_dropout(const Batch&) const { return {}; }
  // Like layer_forward and layer_backward. The gradient of an output that no layer reads is undefined.
  virtual Values run_layer(Weights layer, const Values& inputs, LayerActivations* activations, Recompute recompute,
                           const Batch& batch) const;
  virtual Values run_layer_backward(Weights layer, const Values& d_outputs, LayerActivations& activations,
                                    Gradients gradients) const;

  // tokens [B, T] int64 -> [B, T, H] in the weights' dtype.
  virtual at::Tensor embed_forward(Weights embedding, const at::Tensor& tokens) const;
  // Adds the embedding's gradient. dy: [B, T, H].
  virtual void embed_backward(const at::Tensor& dy, const at::Tensor& tokens, Gradients embedding) const;

  // x: [B, T, H] -> [B, T, H]. `activations`: null if no backward follows (validation); otherwise receives the tensors
  // that `recompute` keeps; layer_backward recomputes the rest. The layers of one model may use different levels. With
  // packed documents in `mask`, B is 1.
  virtual at::Tensor layer_forward(Weights layer, const at::Tensor& x, LayerActivations* activations,
                                   Recompute recompute = Recompute::kNone, const AttentionMask& mask = {},
                                   const std::optional<DropoutSeed>& dropout = {}) const;
  // dy: [B, T, H] -> dx [B, T, H]. Frees `activations`.
  virtual at::Tensor layer_backward(Weights layer, const at::Tensor& dy, LayerActivations& activations,
                                    Gradients gradients) const;

  // The sum of weight * cross-entropy over all B*T targets, divided by B*T, in fp64 on the device of x. `output_weight`
  // [V, H] is head[1], or the embedding's weight if the head is tied; `targets` [B, T] int64; `loss_mask`: the weights,
  // see Batch.
  virtual at::Tensor head_loss(Weights head, const at::Tensor& output_weight, const at::Tensor& x,
                               const at::Tensor& targets, const at::Tensor& loss_mask = {}) const;

  struct HeadResult {
    at::Tensor loss;  // as in head_loss(), but fp32 (fp64 for fp64); not scaled
    at::Tensor dx;    // [B, T, H], of loss * loss_scale
  };
  // Loss and backward in one call, in chunks of tokens, so that no [B*T, V] tensor in fp32 ever exists. Gradients are
  // those of loss * loss_scale. `head_gradients` are those of the head's unit; `output_weight_gradient` is
  // head_gradients[1], or the embedding's if the head is tied.
  virtual HeadResult head_forward_backward(Weights head, const at::Tensor& output_weight, const at::Tensor& x,
                                           const at::Tensor& targets, double loss_scale, Gradients head_gradients,
                                           Gradient& output_weight_gradient, const at::Tensor& loss_mask = {},
                                           const Dropout& dropout = {}) const;

  // The matrix products with FP8 operands, by layer; empty without FP8.
  const std::vector<Fp8Products>& fp8_products() const { return fp8_; }

  // With KeptCasts::kAsToldLater: the first `layers` layers keep the casts of their weights.
  void keep_casts(int64_t layers) { kept_casts_ = layers; }
  // The number of layers that keep them.
  int64_t kept_casts() const { return kept_casts_; }
  // Name of the product's first weight without ".weight", for Fp8Options::filter_fqns.
  std::string weight_name(int64_t layer, LayerProduct product) const;

  // Samples the FP8 casts of requested steps; null without FP8.
  CastWatch* cast_watch() const { return cast_watch_.get(); }

  // The time spent on tuning matrix products so far; most of it is in the first step.
  double tuning_seconds() const;

  // The number of tokens out of `tokens` that head_loss and head_forward_backward process at a time on this device.
  int64_t tokens_per_chunk(int64_t tokens, at::Device device) const;

 protected:
  Matmuls& matmuls() const { return *matmuls_; }

 private:
  ModelConfig config_;
  DecoderOptions options_;
  std::vector<UnitSpec> units_;
  std::optional<LayerLayout> layout_;  // of Llama-like layers
  bool rotates(const Weights& layer) const;
  LayerCasts casts(const Weights& layer) const;
  // Tokens per MLP tile at this level; 0: no tiling.
  int64_t tile_of(Recompute recompute, int64_t tokens) const;
  LayerAdapters adapters(const Weights& layer, const Dropout& dropout) const;
  std::optional<LoraLayout> lora_;
  std::vector<Fp8Products> fp8_;
  int64_t kept_casts_ = 0;
  std::shared_ptr<Matmuls> matmuls_;
  std::shared_ptr<CastWeights> cast_weights_;
  std::shared_ptr<CastWatch> cast_watch_;
  std::shared_ptr<RopeTable> rope_;
};

// Creates the class for the configuration's architecture.
std::unique_ptr<Decoder> make_model(ModelConfig config, DecoderOptions options = {});

}  // namespace mpzero::model
