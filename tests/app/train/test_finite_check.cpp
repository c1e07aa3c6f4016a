#include <ATen/ops/scalar_tensor.h>

#include <limits>

#include "app/train/finite_check.hpp"
#include "base/error.hpp"
#include "tests/catch.hpp"

namespace mpzero {
namespace {

using Catch::Contains;

std::string error_of(double loss, double norm, std::optional<int64_t> saved_step) {
  SingleProcess alone;
  const parallel::StepSummary summary{.loss = loss, .grad_norm = norm, .figures = {}};
  const at::Tensor loss_sum = at::scalar_tensor(2 * loss, at::kDouble);
  try {
    check_finite({.step = 7, .summary = summary, .loss_sum = loss_sum, .micro_batches = 2, .saved_step = saved_step},
                 alone);
  } catch (const Failure& failure) {
    return failure.what();
  }
  return "";
}

TEST_CASE("a non-finite loss or norm is reported with its step and the last checkpoint") {
  const double nan = std::numeric_limits<double>::quiet_NaN(), infinity = std::numeric_limits<double>::infinity();
  CHECK(error_of(2, 1, std::nullopt).empty());
  CHECK_THAT(error_of(nan, 1, 5), Contains("the loss is NaN at step 7: the checkpoint for step 5 is intact"));
  CHECK_THAT(error_of(infinity, nan, std::nullopt), Contains("the loss is infinite at step 7: there is no checkpoint"));
  CHECK_THAT(error_of(2, infinity, 5), Contains("the gradient norm is infinite at step 7 while the loss is finite"));
}

}  // namespace
}  // namespace mpzero
