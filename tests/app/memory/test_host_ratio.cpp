#include "app/memory/host_ratio.hpp"
#include "tests/catch.hpp"

namespace mpzero {

using parallel::MemoryUse;

TEST_CASE("the smallest ratio of states on the host leaves no more on the GPU than fits") {
  const MemoryUse use{.host_optimizer_states = 12'000'000'000};
  CHECK(smallest_host_ratio(use, 0) == 1);
  CHECK(smallest_host_ratio(use, 3'000'000'000) == 0.75);
  CHECK(smallest_host_ratio(use, 3'000'000'001) == 0.75);
  CHECK(smallest_host_ratio(use, 2'999'999'999) == 0.7501);
  CHECK(smallest_host_ratio(use, 12'000'000'000) == 0);
  CHECK(smallest_host_ratio(use, 99'000'000'000) == 0);
  CHECK(smallest_host_ratio({}, 5) == 0);
}

}  // namespace mpzero
