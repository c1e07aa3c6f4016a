#include "app/measure/collective_run.hpp"
#include "base/process_group.hpp"
#include "parallel/comm/communicator.hpp"
#include "tests/catch.hpp"

namespace mpzero::measure {

TEST_CASE("each collective is timed for each dtype and size") {
  parallel::LocalCommunicator communicator;
  SingleProcess alone;
  const std::vector<CollectiveTime> times = collective_times(communicator, alone, {2, 4096});
  REQUIRE(times.size() == 2 * 2 * 3);
  CHECK(times[0].name == "all-gather");
  CHECK(times[1].name == "reduce-scatter");
  CHECK(times[2].name == "all-reduce");
  CHECK(times[0].type == at::kBFloat16);
  CHECK(times[0].bytes == 2);
  CHECK(times[3].bytes == 4096);
  // No tensor is smaller than a number.
  CHECK(times[6].type == at::kFloat);
  CHECK(times[6].bytes == 4);
  for (const CollectiveTime& time : times) CHECK(time.seconds >= 0);
}

}  // namespace mpzero::measure
