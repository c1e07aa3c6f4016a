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

// Returns the loss weight of the next global batch: the sum of the mean token weights of all micro-batches. Without a
// loss mask, the loss weight is the number of micro-batches. The loss of a step is the sum of the micro-batch losses
// divided by the loss weight. Collective if the data has a loss mask; throws UserError on all ranks if the mask
// excludes every token.
double loss_weight(const io::DataLoader& data, int64_t step, ProcessGroup& group);

// Inputs and callbacks of one optimizer step.
struct OptimizerStep {
  at::Device device;
  double lr = 0;
  int64_t update = 1;  // number of the update, from 1
  int64_t micro_batches = 1;
  std::function<double()> loss_weight;           // loss weight of the global batch; see loss_weight()
  std::function<model::Batch()> next;            // next micro-batch, on the device
  std::function<void()> before_update;           // called when the gradients are complete
  std::function<std::vector<double>()> figures;  // see ZeroEngine::measure()
};

struct OptimizerStepResult {
  parallel::StepSummary summary;
  at::Tensor loss_sum;  // sum over this rank's micro-batches; scalar on the device
};

// Runs one optimizer step, for training and for plans. The last phase of `timer` is still open on return. The update is
// skipped if the loss or the gradient norm is not finite.
OptimizerStepResult run_optimizer_step(parallel::ZeroEngine& engine, TrainingPass& pass, StepTimer& timer,
                                       const OptimizerStep& step);

}  // namespace mpzero
