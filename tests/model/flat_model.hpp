#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <utility>
#include <vector>

#include "base/parameter_source.hpp"
#include "model/decoder.hpp"

namespace mpzero::model {

// A single-process model with the engine's storage: one flat buffer of weights and one of gradients per unit.
class FlatModel {
 public:
  // Initializes weights with normally distributed values with standard deviation 0.1 and mean 0 (matrices, biases) or 1
  // (norms).
  FlatModel(const Decoder& decoder, at::TensorOptions options, at::ScalarType gradient_type, uint64_t seed = 1);

  std::vector<std::vector<at::Tensor>> weights;
  std::vector<std::vector<Gradient>> gradients;
  std::vector<at::Tensor> flat_gradients;

  // Return a weight or its gradient by Hugging Face name.
  at::Tensor weight(const std::string& name) const { return weights[find(name).first][find(name).second]; }
  at::Tensor gradient(const std::string& name) const { return gradients[find(name).first][find(name).second].view(); }
  std::vector<std::string> names() const;
  // Returns the weights of a layer, including the layer's index.
  Weights layer(int64_t index) const;
  // Disables gradients of frozen weights, as in training.
  void freeze();
  // Makes the next contributions overwrite the gradients.
  void reset_gradients();

  // Runs the forward and backward pass of one micro-batch and returns the loss. tokens: [B, T + 1]. loss_mask: [B, T],
  // or undefined.
  at::Tensor forward_backward(const at::Tensor& tokens, double loss_scale = 1.0, Recompute recompute = Recompute::kNone,
                              const at::Tensor& loss_mask = {}, const AttentionMask& mask = {});
  // Returns the loss as in validation.
  at::Tensor loss(const at::Tensor& tokens, const at::Tensor& loss_mask = {}, const AttentionMask& mask = {}) const;

 private:
  std::pair<size_t, size_t> find(const std::string& name) const;
  const Decoder& decoder_;
};

}  // namespace mpzero::model
