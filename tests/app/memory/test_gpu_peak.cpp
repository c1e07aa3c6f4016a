#include "app/memory/gpu_peak.hpp"
#include "tests/catch.hpp"

namespace mpzero {

TEST_CASE("a bf16 run on a GPU with an unknown peak rate reports that MFU is unknown") {
  RunSetup setup;
  setup.config.dtype = "bf16";
  setup.device = "NVIDIA GeForce RTX 4090";
  CHECK_THAT(missing_peak(setup), Catch::Contains("NVIDIA GeForce RTX 4090"));
  setup.config.dtype = "fp32";
  CHECK(missing_peak(setup).empty());
  setup.config.dtype = "bf16";
  for (const char* device : {"cpu", "NVIDIA H100 80GB HBM3", "NVIDIA GB200"}) {
    setup.device = device;
    CHECK(missing_peak(setup).empty());
  }
}

}  // namespace mpzero
