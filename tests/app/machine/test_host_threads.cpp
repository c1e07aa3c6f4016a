#include <cstdlib>

#include "app/machine/host_threads.hpp"
#include "tests/catch.hpp"

namespace mpzero {

TEST_CASE("reports AdamW's instruction set on the host if it is not the fastest") {
  CHECK(!slower_update(parallel::HostKernel::kAvx512));
  CHECK_THAT(slower_update(parallel::HostKernel::kAvx2).value(), Catch::Contains("uses AVX2"));
  CHECK_THAT(slower_update(parallel::HostKernel::kPortable).value(), Catch::Contains("slow"));
}

TEST_CASE("warns about few threads for AdamW on the host, unless they are requested") {
  parallel::HostUpdateOptions options;
  options.threads = 1;
  unsetenv("OMP_NUM_THREADS");
  CHECK_THAT(few_threads(options, 1, 16).value(), Catch::Contains("1 of the 16 hardware threads"));
  CHECK_THAT(few_threads(options, 2, 16).value(), Catch::Contains("2 of the 16"));
  CHECK(!few_threads(options, 4, 16));
  options.threads = 14;
  CHECK(!few_threads(options, 1, 16));
  options.threads = 1;
  setenv("OMP_NUM_THREADS", "1", 1);
  CHECK(!few_threads(options, 1, 16));
  // What is no number of threads asks for none.
  setenv("OMP_NUM_THREADS", "", 1);
  CHECK(few_threads(options, 1, 16));
  unsetenv("OMP_NUM_THREADS");
  // The CPU trains: no threads are dedicated.
  options.threads = 0;
  CHECK(!few_threads(options, 1, 16));
  CHECK(online_hardware_threads() >= 1);
}

}  // namespace mpzero
