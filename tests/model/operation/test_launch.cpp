#include <ATen/ops/ones.h>

#include "model/operation/launch.hpp"
#include "tests/catch.hpp"

namespace mpzero::model {

TEST_CASE("kernels support fp32 and bf16, and sums of many rows have several parts") {
  CHECK(has_kernels(at::ones({2}, at::kFloat)));
  CHECK(has_kernels(at::ones({2}, at::kBFloat16)));
  CHECK_FALSE(has_kernels(at::ones({2}, at::kDouble)));
  const at::Tensor few = partial_sums(at::ones({1, 5}), 1, 5), many = partial_sums(at::ones({1, 5}), 10'000, 5);
  CHECK(few.sizes() == at::IntArrayRef({1, 5}));
  CHECK(many.size(0) > 1);
  CHECK(many.size(1) == 5);
}

}  // namespace mpzero::model
