#include "model/kernels/column_sum.hpp"
#include "model/kernels/cpu/cpu.hpp"
#include "tests/model/kernels/cpu/kernel_checks.hpp"

namespace mpzero::model {

TEST_CASE("sums over columns on the CPU") {
  for (const at::ScalarType type : kTypes) {
    const at::Tensor x = numbers({300, 37}, type);
    const auto results = same_on_any_threads([&] { return std::vector{column_sum_rows(x)}; });
    CHECK(relative_error(results[0].sum(0), wide(x).sum(0)) < 1e-5);
  }
}

}  // namespace mpzero::model
