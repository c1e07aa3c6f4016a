#include "app/machine/host_threads.hpp"
#include "tests/catch.hpp"

namespace mpzero {

TEST_CASE("AdamW's instructions on the host are named if they are not the fastest") {
  CHECK(!slower_update(parallel::HostKernel::kAvx512));
  CHECK_THAT(slower_update(parallel::HostKernel::kAvx2).value(), Catch::Contains("uses AVX2"));
  CHECK_THAT(slower_update(parallel::HostKernel::kPortable).value(), Catch::Contains("slow"));
}

}  // namespace mpzero
