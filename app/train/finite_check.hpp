#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>

#include "base/process_group.hpp"
#include "parallel/zero/zero_engine.hpp"

namespace mpzero {

// The loss and the gradient norm of a step.
struct MeasuredStep {
  int64_t step = 0;
  const parallel::StepSummary& summary;
  const at::Tensor& loss_sum;  // sum over this rank's micro-batches
  int64_t micro_batches = 1;
  std::optional<int64_t> saved_step;  // step of the last checkpoint
};

// Throws Failure on all ranks if the loss or the gradient norm is not finite. The message lists the ranks with a
// nonfinite loss and the last checkpoint. Collective over `group` if the check fails.
void check_finite(const MeasuredStep& step, ProcessGroup& group);

}  // namespace mpzero
