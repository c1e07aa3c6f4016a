#include <chrono>
#include <thread>

#include "app/measure/stopwatch.hpp"
#include "tests/catch.hpp"

namespace mpzero::measure {

TEST_CASE("calls are repeated as often as requested, or as time permits, after an untimed round") {
  int calls = 0;
  const auto count = [&](int) {
    ++calls;
    return std::vector<at::Tensor>{};
  };
  measure(at::kCPU, 3, {.repeats = 5}, count);
  CHECK(calls == 3 * (1 + 5));
  calls = 0;
  const auto slow = [&](int set) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    return count(set);
  };
  const Timing timing = measure(at::kCPU, 2, {.repeats = 1000, .seconds = 1e-3, .least = 2}, slow);
  CHECK(calls == 2 * (1 + 2));
  CHECK(timing.seconds >= 2e-3);
  CHECK(timing.host_seconds == timing.seconds);
}

TEST_CASE("rounds with different times have a spread") {
  int calls = 0;
  // Every second round sleeps ten times as long.
  const auto uneven = [&](int) {
    std::this_thread::sleep_for(std::chrono::milliseconds(calls++ % 2 == 0 ? 1 : 10));
    return std::vector<at::Tensor>{};
  };
  CHECK(measure(at::kCPU, 1, {.repeats = 8}, uneven).spread > 0.5);
  CHECK(measure(at::kCPU, 1, {.repeats = 2}, uneven).spread == 0);
}

TEST_CASE("operand sets exceed the size of a cache") {
  CHECK(sets_for(1) == 12);
  CHECK(sets_for(64 << 20) == 4);
  CHECK(sets_for(1e12) == 2);
}

}  // namespace mpzero::measure
