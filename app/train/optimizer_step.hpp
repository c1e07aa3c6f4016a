#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <vector>

#include "app/log/step_timer.hpp"
#include "app/train/training_pass.hpp"
#include "parallel/zero/zero_engine.hpp"

namespace mpzero {

// On the engine's device, [B, T] int64.
struct TokensOfMicroBatch {
  at::Tensor inputs;
  at::Tensor targets;
};

// What one optimizer step is about, and what else happens in it.
struct OptimizerStep {
  at::Device device;
  double lr = 0;
  int64_t update = 1;  // counts from 1
  int64_t micro_batches = 1;
  int64_t losses = 1;  // over all ranks
  std::function<TokensOfMicroBatch()> next;
  std::function<void()> before_update;           // the gradients are complete, the states as before
  std::function<std::vector<double>()> figures;  // see ZeroEngine::measure
};

struct OptimizerStepResult {
  parallel::StepSummary summary;
  at::Tensor loss_sum;  // of this rank, a scalar on the device
};

// The calls of one step in their order, in a run and in a plan of it. The last phase of `timer` is still open; an
// update on figures that are not finite has changed nothing.
OptimizerStepResult run_optimizer_step(parallel::ZeroEngine& engine, TrainingPass& pass, StepTimer& timer,
                                       const OptimizerStep& step);

}  // namespace mpzero
