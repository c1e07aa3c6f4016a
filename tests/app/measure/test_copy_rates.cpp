#include "app/measure/copy_rates.hpp"
#include "tests/catch.hpp"

namespace mpzero::measure {

TEST_CASE("host memory has a copy rate, and a CPU has no link") {
  const CopyRates rates = copy_rates(at::kCPU, int64_t{3} << 20);
  CHECK(rates.on_device > 1e6);
  CHECK(rates.on_device < 1e14);
  CHECK(rates.to_device == 0);
  CHECK(rates.from_device == 0);
  CHECK(rates.both_ways == 0);
}

}  // namespace mpzero::measure
