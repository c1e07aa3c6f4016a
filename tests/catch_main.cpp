#include <cstdio>
#include <cstdlib>
#include <set>
#include <string>

#include "tests/skip.hpp"

#ifdef MPZERO_CATCH2_V2
#define CATCH_CONFIG_RUNNER
#include <catch2/catch.hpp>
#else
#include <catch2/catch_session.hpp>
#include <catch2/interfaces/catch_interfaces_capture.hpp>
#endif

namespace mpzero {
namespace {

// Names of the cases that skip_test() was called in.
std::set<std::string>& skipped_tests() {
  static std::set<std::string> names;
  return names;
}

}  // namespace

void skip_test(const std::string& what_is_missing) {
  const std::string name(Catch::getResultCapture().getCurrentTestName());
  if (skipped_tests().insert(name).second) std::printf("skipped: %s: %s\n", name.c_str(), what_is_missing.c_str());
}

}  // namespace mpzero

// The exit status is 0, 1 where a test failed, and kSkippedExitCode where one was skipped and none failed.
int main(int argc, char** argv) {
  const int failures = Catch::Session().run(argc, argv);
  if (failures != 0) return EXIT_FAILURE;
  if (mpzero::skipped_tests().empty()) return EXIT_SUCCESS;
  std::printf("%zu test cases were skipped\n", mpzero::skipped_tests().size());
  return mpzero::kSkippedExitCode;
}
