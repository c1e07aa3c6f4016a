#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <limits>
#include <string>

#include "base/error.hpp"
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
TEST_CASE("without a thread, work is skipped, or runs inline and ends the process at the limit") {
  std::array<int, 2> errors{};
  REQUIRE(pipe(errors.data()) == 0);
  const pid_t child = fork();
  if (child == 0) {
    dup2(errors[1], STDERR_FILENO);
    const rlimit none{.rlim_cur = 0, .rlim_max = 0};
    setrlimit(RLIMIT_AS, &none);  // no room for another stack
    try {
      for (;;) std::thread([] { pause(); }).detach();  // those that earlier threads left
    } catch (...) {
    }
    bool ran = false;
    const bool done = no_longer_than(std::chrono::hours(1), [&ran] { ran = true; });
    const bool skips = !ran && !done;
    const bool inline_done = no_longer_than(std::chrono::hours(1), [&ran] { ran = true; }, WithoutThread::kRunInline);
    if (!skips || !ran || !inline_done) _exit(3);
    std::signal(SIGALRM, SIG_IGN);  // inherited from the launcher
    no_longer_than(std::chrono::seconds(1), [] { pause(); }, WithoutThread::kRunInline);
    _exit(3);
  }
  close(errors[1]);
  std::string line(1000, ' ');
  line.resize(static_cast<size_t>(std::max(read(errors[0], line.data(), line.size()), ssize_t{0})));
  close(errors[0]);
  int status = -1;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK((WIFEXITED(status) && WEXITSTATUS(status) == kFailureExitCode));
  CHECK_THAT(line, Catch::StartsWith("mpzero: error: "));
}
#endif

}  // namespace mpzero::parallel
