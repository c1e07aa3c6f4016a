#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <limits>

#include "parallel/mpi/deadline.hpp"
#include "tests/catch.hpp"

namespace mpzero::parallel {

TEST_CASE("seconds are rounded up to milliseconds and limited to a hundred years") {
  using std::chrono::milliseconds;
  CHECK(to_milliseconds(0) == milliseconds(0));
  CHECK(to_milliseconds(1.5) == milliseconds(1500));
  CHECK(to_milliseconds(1.0001) == milliseconds(1001));
  CHECK(to_milliseconds(1e9) == milliseconds(1'000'000'000'000));
  for (const double seconds : {1e10, 1e17, std::numeric_limits<double>::max()}) {
    CHECK(to_milliseconds(seconds) == milliseconds(std::chrono::years(100)));
  }
}

#ifndef __SANITIZE_ADDRESS__  // which needs address space itself
TEST_CASE("work runs inline if no thread can be started") {
  const pid_t child = fork();
  if (child == 0) {
    const rlimit none{.rlim_cur = 0, .rlim_max = 0};
    setrlimit(RLIMIT_AS, &none);  // no room for another stack
    try {
      for (;;) std::thread([] { pause(); }).detach();  // those that earlier threads left
    } catch (...) {
    }
    bool ran = false;
    const bool done = no_longer_than(std::chrono::hours(1), [&ran] { ran = true; });
    _exit(ran && done ? 0 : 3);
  }
  int status = -1;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK((WIFEXITED(status) && WEXITSTATUS(status) == 0));
}
#endif

}  // namespace mpzero::parallel
