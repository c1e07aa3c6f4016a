#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <utility>
#include <vector>

#include "base/parameter_source.hpp"
#include "model/decoder.hpp"

namespace mpzero::model {

// A model in one process, stored as the engine stores it: a flat buffer of weights and one of gradients for each unit.
class FlatModel {
 public:
  // Random weights from `source`, or all of them normal with deviation 0.1 around 0 (matrices, biases) or 1 (norms).
  FlatModel(const Decoder& decoder, at::TensorOptions options, at::ScalarType gradient_type, uint64_t seed = 1);

  std::vector<std::vector<at::Tensor>> weights;
  std::vector<std::vector<Gradient>> gradients;
  std::vector<at::Tensor> flat_gradients;

  // Weight and gradient by Hugging Face name.
  at::Tensor weight(const std::string& name) const { return weights[find(name).first][find(name).second]; }
  at::Tensor gradient(const std::string& name) const { return gradients[find(name).first][find(name).second].view(); }
  std::vector<std::string> names() const;
  // The weights of a layer, with its index.
  Weights layer(int64_t index) const;
  // Frozen weights have no gradients from here on, as in training.
  void freeze();
  // The next contributions overwrite the gradients.
  void reset_gradients();

  // Forward and backward of one micro-batch; returns the loss. tokens [B, T + 1], loss_mask [B, T] if any.
  at::Tensor forward_backward(const at::Tensor& tokens, double loss_scale = 1.0, Recompute recompute = Recompute::kNone,
                              const at::Tensor& loss_mask = {}, const AttentionMask& mask = {});
  // The loss as in validation.
  at::Tensor loss(const at::Tensor& tokens, const at::Tensor& loss_mask = {}, const AttentionMask& mask = {}) const;

 private:
  std::pair<size_t, size_t> find(const std::string& name) const;
  const Decoder& decoder_;
};

}  // namespace mpzero::model
