#include "base/text/number_ranges.hpp"
#include "tests/catch.hpp"

namespace mpzero {

TEST_CASE("consecutive numbers are written as ranges") {
  CHECK(number_ranges({7, 3, 2, 4}) == "2-4,7");
  CHECK(number_ranges({5}) == "5");
  CHECK(number_ranges({}).empty());
}

}  // namespace mpzero
