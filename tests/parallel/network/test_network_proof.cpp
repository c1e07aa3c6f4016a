// In builds with GPU kernels only, which are linked with NCCL.
#include <fmt/format.h>
#include <nccl.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "base/environment.hpp"
#include "parallel/network/network_proof.hpp"
#include "tests/catch.hpp"
#include "tests/setting.hpp"

namespace mpzero::parallel {

TEST_CASE("NCCL's log is captured, and the user's settings are restored") {
  const Setting user("NCCL_DEBUG", "WARN");
  std::string text;
  {
    const NcclLog log;
    CHECK(process_environment("NCCL_DEBUG") == "INFO");
    ncclUniqueId id;
    REQUIRE(ncclGetUniqueId(&id) == ncclSuccess);
    text = log.text();
  }
  CHECK_THAT(text, Catch::Contains("NCCL INFO"));
  CHECK(process_environment("NCCL_DEBUG") == "WARN");
  CHECK_FALSE(process_environment("NCCL_DEBUG_FILE"));
  CHECK_FALSE(process_environment("NCCL_DEBUG_SUBSYS"));
}

TEST_CASE("a user who set NCCL_DEBUG also gets the captured log") {
  const std::string folder = "nccl_log_for_tests";
  std::filesystem::create_directories(folder);
  const std::string file = fmt::format("{}/100%.{}", folder, getpid());
  {
    const Setting level("NCCL_DEBUG", "info");
    const Setting destination("NCCL_DEBUG_FILE", folder + "/100%%.%p");
    const NcclLog log;
    REQUIRE(ncclGetUniqueId(nullptr) == ncclInvalidArgument);  // NCCL logs a warning each time
  }
  std::ifstream words(file + ".start");
  CHECK_THAT(std::string(std::istreambuf_iterator<char>(words), {}), Catch::Contains("NCCL WARN"));
  std::filesystem::remove_all(folder);
}

}  // namespace mpzero::parallel
