#include "base/gpu_kernels.hpp"
#include "parallel/comm/copy_engines.hpp"
#include "parallel/comm/library_versions.hpp"
#include "tests/catch.hpp"

namespace mpzero::parallel {

// NCCL's release notes: 2.31.2 "Fixes a hang during the first Copy Engine collective on a two-rank communicator".
TEST_CASE("copy engines are not used with two ranks and an NCCL version that can hang") {
  for (const int version : {22902, 22903, 22907, 23003, 23007, 23101}) {
    CAPTURE(version);
    const std::optional<std::string> hazard = copy_engine_hazard(version, 2);
    REQUIRE(hazard);
    CHECK_THAT(*hazard, Catch::Contains("NCCL " + version_text(version) + " can hang"));
    CHECK_THAT(*hazard, Catch::Contains("2.31.2"));
    for (const int world_size : {1, 3, 8}) CHECK(!copy_engine_hazard(version, world_size));
  }
  for (const int version : {0, 22707, 22809, 23102, 23206, 30000}) {
    CAPTURE(version);
    CHECK(!copy_engine_hazard(version, 2));
  }
}

TEST_CASE("NCCL's version number matches its text") {
  CHECK(version_text(22809) == "2.28.9");
  CHECK(version_text(23102) == "2.31.2");
  CHECK(nccl_version() == (built_with_gpu_kernels() ? version_text(nccl_version_code()) : "none"));
}

}  // namespace mpzero::parallel
