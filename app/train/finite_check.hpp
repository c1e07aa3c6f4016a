#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>

#include "base/process_group.hpp"
#include "parallel/zero/zero_engine.hpp"

namespace mpzero {

// A step whose figures are known.
struct MeasuredStep {
  int64_t step = 0;
  const parallel::StepSummary& summary;
  const at::Tensor& loss_sum;  // over this rank's micro-batches
  int64_t micro_batches = 1;
  std::optional<int64_t> saved_step;  // of the last checkpoint
};

// Throws Failure on all ranks where the loss or the norm is not finite: which of them, the ranks whose loss it is, and
// which checkpoint is there. Collective over `group` then.
void check_finite(const MeasuredStep& step, ProcessGroup& group);

}  // namespace mpzero
