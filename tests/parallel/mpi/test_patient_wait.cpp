#include <cstdint>
#include <stdexcept>
#include <vector>

#include "parallel/mpi/patient_wait.hpp"
#include "tests/catch.hpp"

namespace mpzero::parallel {
namespace {

using std::chrono::microseconds;

// Polls that find what is to come `polls` polls later, and the sleeps that they led to.
struct Waiting {
  int polls;
  std::vector<Pauses::Duration> slept{};

  void wait() {
    poll_patiently([this] { return polls-- == 0; }, [this](Pauses::Duration pause) { slept.push_back(pause); });
  }
};

}  // namespace

TEST_CASE("a completed operation is not followed by a sleep") {
  Waiting waiting{.polls = 0};
  waiting.wait();
  CHECK(waiting.slept.empty());
}

TEST_CASE("each unsuccessful poll is followed by a sleep that doubles up to a limit") {
  Waiting waiting{.polls = 11};
  waiting.wait();
  std::vector<int64_t> slept;
  for (const Pauses::Duration pause : waiting.slept) slept.push_back(pause / microseconds(1));
  CHECK(slept == std::vector<int64_t>{5, 10, 20, 40, 80, 160, 320, 640, 1000, 1000, 1000});
}

TEST_CASE("an error of a poll is thrown without a sleep") {
  int sleeps = 0;
  CHECK_THROWS_AS(poll_patiently([]() -> bool { throw std::runtime_error("the network is down"); },
                                 [&](Pauses::Duration) { ++sleeps; }),
                  std::runtime_error);
  CHECK(sleeps == 0);
}

TEST_CASE("pauses are short again after progress") {
  Pauses pauses;
  for (int i = 0; i < 10; ++i) pauses.next();
  CHECK(pauses.next() == microseconds(1000));
  pauses.begin_anew();
  CHECK(pauses.next() == microseconds(5));
  CHECK(pauses.next() == microseconds(10));
}

}  // namespace mpzero::parallel
