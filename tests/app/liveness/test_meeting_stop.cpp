#include <csignal>
#include <future>

#include "app/liveness/meeting_stop.hpp"
#include "base/error.hpp"
#include "tests/catch.hpp"

namespace mpzero {

TEST_CASE("A rank that is asked to stop while the ranks meet ends with the exit code of that request") {
  const StopRequest stop;
  std::promise<int> ended;
  int expected = kStoppedExitCode;
  SECTION("by a signal") { std::raise(SIGTERM); }
  SECTION("by an interrupt") { std::raise(SIGINT); }
  SECTION("by two interrupts") {
    std::raise(SIGINT);
    std::raise(SIGINT);
    expected = kInterruptedExitCode;
  }
  const MeetingStop meeting(stop, std::chrono::seconds(0), [&](int exit_code) { ended.set_value(exit_code); });
  CHECK(ended.get_future().get() == expected);
}

TEST_CASE("A meeting that is over ends nothing, nor does one whose request is younger than the patience") {
  int ended = 0;
  const StopRequest stop;
  {
    const MeetingStop none(stop, std::chrono::seconds(0), [&](int exit_code) { ended = exit_code; });
  }
  std::raise(SIGTERM);
  {
    const MeetingStop young(stop, std::chrono::hours(1), [&](int exit_code) { ended = exit_code; });
  }
  CHECK(ended == 0);
}

}  // namespace mpzero
