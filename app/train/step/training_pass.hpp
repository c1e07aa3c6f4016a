#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "app/log/step_timer.hpp"
#include "app/train/step/host_activations.hpp"
#include "io/data/data_loader.hpp"
#include "model/decoder.hpp"
#include "parallel/zero/zero_engine.hpp"

namespace mpzero {

// Copies a micro-batch to a device; packed documents become one sequence. `ranks`: the ranks that share the sequences,
// or null.
model::Batch batch_on(at::Device device, const io::MicroBatch& batch, int64_t seq_length,
                      std::shared_ptr<const SequenceExchange> ranks = nullptr);

// Runs micro-batches through the model, unit by unit: gathers parameters before each unit, releases them after it, and
// reduces gradients over the ranks as soon as the unit's backward is done.
class TrainingPass {
 public:
  // `micro_batches`: per step. The other arguments must outlive the pass.
  TrainingPass(const model::Decoder& decoder, parallel::ZeroEngine& engine, StepTimer& timer, int64_t micro_batches);

  // Sets what each layer recomputes in its backward, by layer. Default: nothing. Allocates host memory for layers at
  // Recompute::kHost. `tokens`: the maximum per micro-batch of this rank.
  void recompute(std::vector<model::Recompute> levels, int64_t tokens);

  // Forward and backward of a batch on the engine's device. Returns the loss (the mean of weight * loss over its
  // tokens), an fp32 scalar on that device. Gradients are those of loss * loss_scale. `last_of_step`: no later
  // micro-batch adds to these gradients.
  at::Tensor train(const model::Batch& batch, double loss_scale, bool last_of_step);
  // Forward only; returns the same loss in fp64.
  at::Tensor validate(const model::Batch& batch);

 private:
  enum class Mode { kTrain, kValidate };
  const std::string& name(size_t unit) const { return decoder_.units()[unit].name; }
  void plan(const std::vector<size_t>& units);
  // Runs all units before the head.
  at::Tensor forward_layers(const model::Batch& batch, Mode mode);
  // `d_head`: gradient of the head's input. Returns the gradients of the embedding's values.
  model::Values backward_layers(at::Tensor d_head);

  const model::Decoder& decoder_;
  parallel::ZeroEngine& engine_;
  parallel::GradientStore& gradients_;
  StepTimer& timer_;  // train() marks the phases in it
  int64_t micro_batches_;
  std::vector<model::LayerValues> graph_;  // by layer
  size_t num_values_ = 0;
  std::vector<std::vector<size_t>> last_reads_;       // by layer: values that no later layer reads
  std::vector<model::Recompute> recompute_;           // by layer
  std::vector<model::LayerActivations> activations_;  // by layer; without x at kHost
  std::optional<HostActivations> inputs_;             // of the layers at kHost
};

}  // namespace mpzero
