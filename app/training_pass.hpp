#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "app/step_timer.hpp"
#include "model/decoder.hpp"
#include "parallel/zero_engine.hpp"

namespace mpzero {

// Takes micro-batches through the model, unit by unit: parameters are gathered ahead of each unit and let go behind it,
// gradients are summed over the ranks as soon as a unit's backward is done.
class TrainingPass {
 public:
  struct Options {
    bool recompute_activations = false;
    // Gradients are those of loss * loss_scale: 1 / (ranks * micro-batches a step), so that their sum is that of the
    // mean loss.
    double loss_scale = 1.0;
    int64_t micro_batches = 1;  // of a step
  };
  // `decoder`, `engine` and `timer` outlive the pass.
  TrainingPass(const model::Decoder& decoder, parallel::ZeroEngine& engine, StepTimer& timer, const Options& options);

  // Forward and backward; inputs and targets [B, T] int64 on the engine's device. Returns the mean loss of the
  // micro-batch, an fp32 scalar on that device. `last_of_step`: no further micro-batch adds to these gradients.
  at::Tensor train(const at::Tensor& inputs, const at::Tensor& targets, bool last_of_step);
  // Forward only; the mean loss.
  at::Tensor validate(const at::Tensor& inputs, const at::Tensor& targets);

 private:
  enum class Mode { kTrain, kValidate };
  const std::string& name(size_t unit) const { return decoder_.units()[unit].name; }
  // Everything before the head.
  at::Tensor forward_layers(const at::Tensor& inputs, Mode mode);
  // The order in which a whole step, or one validation batch, uses the units.
  std::vector<size_t> order_of_training() const;
  std::vector<size_t> order_of_validation() const;

  const model::Decoder& decoder_;
  parallel::ParameterStore& parameters_;
  parallel::GradientStore& gradients_;
  StepTimer& timer_;  // knows when train() turns back
  Options options_;
  std::vector<model::LayerActivations> activations_;  // by layer
};

}  // namespace mpzero
