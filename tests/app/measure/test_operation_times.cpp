#include <ATen/ops/ones.h>

#include <chrono>
#include <thread>

#include "app/measure/operation_times.hpp"
#include "model/kernels/swiglu.hpp"
#include "tests/catch.hpp"

namespace mpzero::measure {
namespace {

using model::Operation;
using model::OperationScope;

void sleep() { std::this_thread::sleep_for(std::chrono::milliseconds(20)); }

}  // namespace

TEST_CASE("times each distinct operation of a unit, and leaves the thread's observer in place") {
  const at::Tensor small = at::ones({3, 8}, at::kFloat), large = at::ones({30, 8}, at::kFloat);
  model::OperationRecorder before;
  int runs = 0;
  const auto times = operation_times(at::kCPU, {.repeats = 5, .least = 5}, 1 << 10, [&] {
    ++runs;
    for (const at::Tensor& x : {small, large, small}) model::swiglu_forward(x);
  });
  CHECK(runs == 5);
  REQUIRE(times.size() == 2);
  CHECK(times[0].operation.sizes == std::vector<int64_t>{3, 4});
  CHECK(times[0].calls == 2);
  CHECK(times[1].operation.sizes == std::vector<int64_t>{30, 4});
  CHECK(times[1].calls == 1);
  for (const OperationTime& time : times) CHECK(time.timing.seconds > 0);
  CHECK(before.seen.empty());
  CHECK(model::OperationObserver::current() == &before);
}

TEST_CASE("an operation's time excludes the operations inside it") {
  const auto start = std::chrono::steady_clock::now();
  const auto times = operation_times(at::kCPU, {.repeats = 1}, 0, [] {
    const OperationScope outer("outer", [] { return Operation{}; });
    sleep();
    const OperationScope inner("inner", [] { return Operation{}; });
    sleep();
  });
  const std::chrono::duration<double> all = std::chrono::steady_clock::now() - start;
  REQUIRE(times.size() == 2);
  CHECK(times[0].operation.name == "outer");
  CHECK(times[1].operation.name == "inner");
  for (const OperationTime& time : times) CHECK(time.timing.seconds >= 0.02);
  // The two parts do not overlap.
  CHECK(times[0].timing.seconds + times[1].timing.seconds <= all.count());
}

TEST_CASE("marks inside an operation do not count as its work") {
  // Marks of 1 s around: 2 s of work, an operation of 3 s, 4 s of work, an operation of 5 s. By hand: the outer
  // operation's first and last mark are 2 + 1 + 3 + 1 + 4 + 1 + 5 + 1 + 1 s apart.
  const std::vector<MarkedCall> calls{{.seconds = 19}, {.seconds = 4, .caller = 0}, {.seconds = 6, .caller = 0}};
  CHECK(own_seconds(calls, 1) == std::vector<double>{6, 3, 5});
  CHECK(own_seconds({{.seconds = 0.5}}, 1) == std::vector<double>{0});
}

TEST_CASE("an operation that only some runs contain is timed in these") {
  const at::Tensor x = at::ones({3, 8}, at::kFloat);
  int runs = 0;
  const auto times = operation_times(at::kCPU, {.repeats = 4, .least = 4}, 0, [&] {
    if (runs++ % 2 == 0) {
      model::swiglu_forward(x);
    } else {
      model::swiglu_backward(at::ones({3, 4}, at::kFloat), x);
    }
  });
  REQUIRE(times.size() == 2);
  for (const OperationTime& time : times) {
    CHECK(time.calls == 1);
    CHECK(time.timing.spread == 0);  // two runs are too few
  }
}

}  // namespace mpzero::measure
