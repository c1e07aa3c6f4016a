#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
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

// Copies a micro-batch to a device. Packed documents become one sequence. `ranks`: the ranks that share the sequences;
// may be null.
model::Batch batch_on(at::Device device, const io::MicroBatch& batch, int64_t seq_length,
                      std::shared_ptr<const SequenceExchange> ranks = nullptr);

// Runs the forward and backward passes of micro-batches, unit by unit. Gathers each unit's parameters before the unit
// runs, releases them afterwards, and reduces the unit's gradients over all ranks after its backward pass.
class TrainingPass {
 public:
  // `micro_batches`: number of micro-batches per step. `moved_on`: called before each layer, forward and backward; may
  // be empty. The other arguments must outlive the pass.
  TrainingPass(const model::Decoder& decoder, parallel::ZeroEngine& engine, StepTimer& timer, int64_t micro_batches,
               std::function<void()> moved_on = {});

  // Sets the recompute level of each layer (default: Recompute::kNone). Allocates host memory for layers with
  // Recompute::kHost and kHostAttention. `sequences`, `length`: size of the micro-batches of train() on this rank.
  void recompute(std::vector<model::Recompute> levels, int64_t sequences, int64_t length);

  // Runs the forward and backward pass for a batch on the engine's device. Returns the loss, the mean of weight * loss
  // over all tokens, as an fp32 scalar on the device. Accumulates the gradients of loss * loss_scale. `last_of_step`:
  // true for the last micro-batch of the step.
  at::Tensor train(const model::Batch& batch, double loss_scale, bool last_of_step);
  // Runs only the forward pass. Returns the loss, defined as in train(), as an fp64 scalar.
  at::Tensor validate(const model::Batch& batch);

 private:
  enum class Mode { kTrain, kValidate };
  const std::string& name(size_t unit) const { return decoder_.units()[unit].name; }
  void plan(const std::vector<size_t>& units);
  // Runs all units before the head.
  at::Tensor forward_layers(const model::Batch& batch, Mode mode);
  // Move a layer's activations to host memory after its forward pass, and back before its backward pass.
  void offload(model::LayerActivations& saved);
  void fetch(model::LayerActivations& saved);
  // Returns the gradients of the embedding's outputs. `d_head`: gradient of the head's input.
  model::Values backward_layers(at::Tensor d_head);

  const model::Decoder& decoder_;
  parallel::ZeroEngine& engine_;
  parallel::GradientStore& gradients_;
  StepTimer& timer_;
  int64_t micro_batches_;
  std::function<void()> moved_on_;
  std::vector<model::LayerValues> graph_;  // one per layer
  size_t num_values_ = 0;
  std::vector<std::vector<size_t>> last_reads_;       // one per layer; values that later layers do not read
  std::vector<model::Recompute> recompute_;           // one per layer
  std::optional<int64_t> planned_tokens_;             // of one micro-batch of train(); unset before recompute()
  std::vector<model::LayerActivations> activations_;  // one per layer; without tensors in the stacks below
  // Inputs of layers for which model::keeps_on_host() is true; attention outputs and log-sum-exps of layers with
  // Recompute::kHostAttention.
  std::optional<HostActivations> inputs_, attended_, log_sums_;
};

}  // namespace mpzero
