#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <vector>

#include "app/log/step_timer.hpp"
#include "app/train/step/training_pass.hpp"
#include "base/process_group.hpp"
#include "io/data/data_loader.hpp"
#include "parallel/zero/zero_engine.hpp"

namespace mpzero {

// The weight of the next step's global batch: the sum of its micro-batches' mean weights, which is their number without
// a loss mask. The step's loss is the sum of the micro-batches' losses over all ranks, divided by it. Collective if
// `data` has a loss mask; then throws UserError on all ranks where every token of the step is masked.
double loss_weight(const io::DataLoader& data, int64_t step, ProcessGroup& group);

// What one optimizer step is about, and what else happens in it.
struct OptimizerStep {
  at::Device device;
  double lr = 0;
  int64_t update = 1;  // counts from 1
  int64_t micro_batches = 1;
  std::function<double()> loss_weight;           // of the global batch: see loss_weight()
  std::function<model::Batch()> next;            // on the device
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
