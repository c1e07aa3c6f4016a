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
// a loss mask. The step's loss is the sum of the micro-batches' losses over all ranks, divided by this weight. With a
// loss mask, collective; throws UserError on all ranks if every token of the step is masked.
double loss_weight(const io::DataLoader& data, int64_t step, ProcessGroup& group);

// Inputs and callbacks of one optimizer step.
struct OptimizerStep {
  at::Device device;
  double lr = 0;
  int64_t update = 1;  // counts from 1
  int64_t micro_batches = 1;
  std::function<double()> loss_weight;           // of the global batch: see loss_weight()
  std::function<model::Batch()> next;            // micro-batch, on the device
  std::function<void()> before_update;           // called when gradients are complete, before states change
  std::function<std::vector<double>()> figures;  // see ZeroEngine::measure
};

struct OptimizerStepResult {
  parallel::StepSummary summary;
  at::Tensor loss_sum;  // this rank's, a scalar on the device
};

// Makes the calls of one step in order, for runs and plans. The last phase of `timer` is still open on return. The
// update changes nothing if the loss or the norm is not finite.
OptimizerStepResult run_optimizer_step(parallel::ZeroEngine& engine, TrainingPass& pass, StepTimer& timer,
                                       const OptimizerStep& step);

}  // namespace mpzero
