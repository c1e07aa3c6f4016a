#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "app/log/step_timer.hpp"
#include "model/decoder.hpp"
#include "parallel/zero/zero_engine.hpp"

namespace mpzero {

// Token ids of whole sequences as a tensor [sequences, seq_length] on a device; a copy.
at::Tensor tokens_on(at::Device device, const std::vector<int64_t>& tokens, int64_t seq_length);

// Runs micro-batches through the model, unit by unit: parameters are gathered before each unit and released after it,
// and gradients are reduced over the ranks as soon as a unit's backward is done.
class TrainingPass {
 public:
  struct Options {
    // Gradients are those of loss * loss_scale, which is 1 / (ranks * micro-batches per step), so that their sum is the
    // gradient of the mean loss.
    double loss_scale = 1.0;
    int64_t micro_batches = 1;  // of a step
  };
  // `decoder`, `engine` and `timer` must outlive the pass.
  TrainingPass(const model::Decoder& decoder, parallel::ZeroEngine& engine, StepTimer& timer, const Options& options);

  // Sets what each layer recomputes in its backward, by layer; nothing before this is called.
  void recompute(std::vector<model::Recompute> levels) { recompute_ = std::move(levels); }

  // Forward and backward; inputs and targets [B, T] int64 on the engine's device. Returns the mean loss of the
  // micro-batch, an fp32 scalar on that device. `last_of_step`: no further micro-batch adds to these gradients.
  at::Tensor train(const at::Tensor& inputs, const at::Tensor& targets, bool last_of_step);
  // Forward only; the mean loss in fp64.
  at::Tensor validate(const at::Tensor& inputs, const at::Tensor& targets);

 private:
  enum class Mode { kTrain, kValidate };
  const std::string& name(size_t unit) const { return decoder_.units()[unit].name; }
  // Everything before the head.
  at::Tensor forward_layers(const at::Tensor& inputs, Mode mode);

  const model::Decoder& decoder_;
  parallel::ParameterStore& parameters_;
  parallel::GradientStore& gradients_;
  StepTimer& timer_;  // train() marks the phases in it
  Options options_;
  std::vector<model::Recompute> recompute_;           // by layer
  std::vector<model::LayerActivations> activations_;  // by layer
};

}  // namespace mpzero
