#include <limits>

#include "parallel/mpi/deadline.hpp"
#include "tests/catch.hpp"

namespace mpzero::parallel {

TEST_CASE("Seconds are rounded up to milliseconds, and more than a hundred years are a hundred years") {
  using std::chrono::milliseconds;
  CHECK(to_milliseconds(0) == milliseconds(0));
  CHECK(to_milliseconds(1.5) == milliseconds(1500));
  CHECK(to_milliseconds(1.0001) == milliseconds(1001));
  CHECK(to_milliseconds(1e9) == milliseconds(1'000'000'000'000));
  for (const double seconds : {1e10, 1e17, std::numeric_limits<double>::max()}) {
    CHECK(to_milliseconds(seconds) == milliseconds(std::chrono::years(100)));
  }
}

}  // namespace mpzero::parallel
