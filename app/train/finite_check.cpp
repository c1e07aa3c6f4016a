#include "app/train/finite_check.hpp"

#include <ATen/core/Tensor.h>
#include <fmt/format.h>

#include <cmath>
#include <string>

#include "base/collectives.hpp"
#include "base/error.hpp"

namespace mpzero {
namespace {

// `value` must not be finite.
const char* describe(double value) { return std::isnan(value) ? "NaN" : "infinite"; }

}  // namespace

void check_finite(const MeasuredStep& step, ProcessGroup& group) {
  const parallel::StepSummary& summary = step.summary;
  if (std::isfinite(summary.loss) && std::isfinite(summary.grad_norm)) return;
  const std::string saved = step.saved_step ? fmt::format("the checkpoint for step {} is intact", *step.saved_step)
                                            : "there is no checkpoint yet";
  run_on_all_ranks(group, [&] {
    const double loss = step.loss_sum.item<double>() / static_cast<double>(step.micro_batches);
    if (std::isfinite(loss)) return;
    throw_failure("the loss is {} at step {}: {}; lower the learning rate, extend the warm-up, or check the data",
                  describe(loss), step.step, saved);
  });
  throw Failure(fmt::format("the gradient norm is {} at step {} while the loss is finite: {}; lower the learning rate "
                            "or extend the warm-up",
                            describe(summary.grad_norm), step.step, saved),
                ErrorScope::kAllRanks);
}

}  // namespace mpzero
