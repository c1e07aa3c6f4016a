#include <cmath>

#include "parallel/mpi/clock_offset.hpp"
#include "tests/catch.hpp"
#include "tests/parallel/mpi_for_tests.hpp"

namespace mpzero::parallel {

TEST_CASE("the offset of a clock is measured to within the round trip") {
  MpiRuntime& world = mpi();
  for (const double ahead : {0.0, 90.0, -3.5}) {
    const auto clock = [&] { return system_clock_seconds() + (world.rank() == 1 ? ahead : 0.0); };
    const std::vector<double> offsets = measure_clock_offsets(world, {0, 1}, clock);
    if (world.rank() != 0) {
      CHECK(offsets.empty());
      continue;
    }
    REQUIRE(offsets.size() == 2);
    CHECK(offsets[0] == 0.0);
    CHECK(std::abs(offsets[1] - ahead) < 0.2);
  }
}

TEST_CASE("ranks that are not measured need not take part") {
  const std::vector<double> offsets = measure_clock_offsets(mpi(), {0});
  CHECK(offsets.size() == (mpi().rank() == 0 ? 1U : 0U));
}

}  // namespace mpzero::parallel
