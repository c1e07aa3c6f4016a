#include "app/liveness/early_stop.hpp"
#include "app/liveness/final_report.hpp"
#include "base/error.hpp"
#include "tests/catch.hpp"

namespace mpzero {

TEST_CASE("A stop waits for signs of a failure, and reporting ranks wait for the monitor") {
  using std::chrono::milliseconds;
  const LivenessTime start = LivenessClock::now();
  EarlyStop stop;
  CHECK_FALSE(stop.asked());
  CHECK_FALSE(stop.settled(start));
  CHECK_FALSE(stop.overdue(start));
  CHECK(stop.ask(kStoppedExitCode, start));
  CHECK(stop.asked());
  CHECK_FALSE(stop.settled(start + milliseconds(200)));
  CHECK(stop.settled(start + milliseconds(400)));
  CHECK_FALSE(stop.overdue(start + milliseconds(8900)));
  CHECK(stop.overdue(start + milliseconds(9100)));
}

TEST_CASE("The most urgent request decides the exit code, and repeated requests are not new") {
  using std::chrono::seconds;
  const LivenessTime start = LivenessClock::now();
  EarlyStop stop;
  CHECK(stop.ask(kStoppedExitCode, start));
  CHECK_FALSE(stop.ask(kStoppedExitCode, start));
  CHECK(stop.ask(kInterruptedExitCode, start + seconds(2)));
  CHECK_FALSE(stop.ask(kStoppedExitCode, start));
  CHECK(stop.exit_code() == kInterruptedExitCode);
  // Counted from the first request.
  CHECK(stop.overdue(start + seconds(10)));
}

TEST_CASE("Ranks wait for a monitor whose file system does not respond: for stop.json, `latest` and its message") {
  const LivenessTime start = LivenessClock::now();
  EarlyStop stop;
  stop.ask(kStoppedExitCode, start);
  LivenessTime now = start;
  while (!stop.settled(now)) now += std::chrono::milliseconds(10);
  CHECK_FALSE(stop.overdue(now + 2 * kDiskLimit + kPrintLimit));
}

}  // namespace mpzero
