#include "app/measure/adamw_run.hpp"
#include "tests/catch.hpp"

namespace mpzero::measure {

TEST_CASE("updates and norms of any size take time") {
  // Less than a block, and some blocks and a rest.
  for (const int64_t parameters : {int64_t{100}, int64_t{3} * 16384 + 5}) {
    CHECK(adamw_seconds(at::kCPU, parameters) > 0);
    CHECK(host_adamw_seconds(parameters, 2, at::kCPU) > 0);
    CHECK(sum_of_squares_seconds(at::kCPU, parameters) > 0);
  }
}

}  // namespace mpzero::measure
