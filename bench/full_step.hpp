#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "model/decoder.hpp"
#include "parallel/optimizer/adamw.hpp"

namespace mpzero::bench {

// The training step of a model with random weights on one GPU: the computation of `mpzero train`, without data loading
// and communication.
class FullStep {
 public:
  // B: micro-batch, T: sequence length. `with_optimizer`: also allocates AdamW states (12 bytes per parameter).
  FullStep(const model::ModelConfig& config, int64_t micro_batch, int64_t length, bool with_optimizer);

  const model::Decoder& decoder() const { return decoder_; }
  const at::Tensor& tokens() const { return tokens_; }
  const std::vector<at::Tensor>& weights(size_t unit) const { return units_[unit].weights; }

  // Returns uninitialized gradients of a unit, in the unit's buffer.
  std::vector<model::Gradient> gradients(size_t unit) const;
  // Returns the loss.
  at::Tensor forward_backward();
  // Returns the squared norm of the gradients, without synchronization. update() runs AdamW.
  at::Tensor sum_of_squares() const;
  void update();

 private:
  struct Unit {
    std::vector<at::Tensor> weights, gradients;
    at::Tensor gradient;
    parallel::AdamWTensors optimizer;
  };

  model::Decoder decoder_;
  std::vector<Unit> units_;
  at::Tensor tokens_, targets_;  // [B, T]
  int64_t updates_ = 0;
};

}  // namespace mpzero::bench
