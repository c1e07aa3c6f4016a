#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <span>
#include <vector>

#include "base/parameter_spec.hpp"
#include "model/config.hpp"
#include "model/gradient.hpp"

namespace mpzero::model {

// A unit's weights in the order of its UnitSpec: views into the unit's flat buffer.
using Weights = std::span<const at::Tensor>;
// Where the gradients of a unit's weights go, in the same order.
using Gradients = std::span<Gradient>;

// What layer_backward needs of layer_forward. Holds the layer's input only when activations are recomputed.
struct LayerActivations {
  std::vector<at::Tensor> saved;
};

// A decoder-only language model as units that are run one by one: the embedding, each decoder layer, the head. It owns no
// weights: whoever calls it gathers them, and hands over where gradients go. B: micro-batch, T: sequence length,
// H: hidden size, V: vocabulary.
class Decoder {
 public:
  explicit Decoder(ModelConfig config);

  const ModelConfig& config() const { return config_; }

  // The embedding, the layers, the head; in the order of the forward pass. With a tied head the head's unit holds the final
  // norm only and the logits use the embedding's weight.
  const std::vector<UnitSpec>& units() const { return units_; }
  size_t embedding_unit() const { return 0; }
  size_t layer_unit(int64_t layer) const { return static_cast<size_t>(layer) + 1; }
  size_t head_unit() const { return units_.size() - 1; }
  bool tied_head() const { return config_.tie_word_embeddings; }

  // tokens [B, T] int64 -> [B, T, H] in the weights' dtype.
  at::Tensor embed_forward(Weights embedding, const at::Tensor& tokens) const;
  // Adds the embedding's gradient. dy: [B, T, H].
  void embed_backward(const at::Tensor& dy, const at::Tensor& tokens, Gradients embedding) const;

  // x: [B, T, H] -> [B, T, H]. `activations`: null when no backward will follow (validation). With `recompute` only x is kept
  // and layer_backward runs the forward again.
  at::Tensor layer_forward(Weights layer, const at::Tensor& x, LayerActivations* activations, bool recompute) const;
  // dy: [B, T, H] -> dx [B, T, H]. Frees `activations`.
  at::Tensor layer_backward(Weights layer, const at::Tensor& dy, LayerActivations& activations, Gradients gradients) const;

  // Mean cross-entropy over all B*T targets, fp32 scalar on the device of x. `output_weight` [V, H] is head[1], or the
  // embedding's weight when the head is tied; `targets` [B, T] int64.
  at::Tensor head_loss(Weights head, const at::Tensor& output_weight, const at::Tensor& x, const at::Tensor& targets) const;

  struct HeadResult {
    at::Tensor loss;  // as head_loss: not scaled
    at::Tensor dx;    // [B, T, H], of loss * loss_scale
  };
  // Loss and backward at once, in chunks of tokens, so that no [B*T, V] tensor in fp32 ever exists. Gradients are those
  // of loss * loss_scale.
  HeadResult head_forward_backward(Weights head, const at::Tensor& output_weight, const at::Tensor& x, const at::Tensor& targets,
                                   double loss_scale, Gradients head_gradients, Gradient& output_weight_gradient) const;

 private:
  ModelConfig config_;
  std::vector<UnitSpec> units_;
};

}  // namespace mpzero::model
