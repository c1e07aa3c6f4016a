#include <regex>

#include "app/log/version.hpp"
#include "tests/catch.hpp"

namespace mpzero {

TEST_CASE("the version text contains mpzero's commit and each library") {
  const std::string text = version_text();
  CHECK(
      std::regex_match(text, std::regex("mpzero \\d+\\.\\d+\\.\\d+ \\(commit ([0-9a-f]{10}\\+?|unknown)\\)\n"
                                        "torch \\S+, CUDA \\d+\\.\\d, NCCL (none|\\d+\\.\\d+\\.\\d+), Open MPI v\\S+\n"
                                        "GPU kernels: (none|[0-9a-z -]+)\n")));
}

}  // namespace mpzero
