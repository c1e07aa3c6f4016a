#include "parallel/streams/streams.hpp"
#include "tests/catch.hpp"

using namespace mpzero::parallel;

// Streams and their order on the simulated device: tests/app/simulation; on a GPU: tests/gpu.
TEST_CASE("the CPU has no streams") {
  CHECK_FALSE(has_streams(c10::kCPU));
  CHECK(has_streams(c10::kCUDA));
  CHECK(has_streams(mpzero::kSimulatedDevice));
}
