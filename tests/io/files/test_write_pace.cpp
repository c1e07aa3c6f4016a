#include <atomic>
#include <chrono>
#include <functional>
#include <thread>
#include <vector>

#include "io/checkpoint_dir/background_save.hpp"
#include "io/files/write_pace.hpp"
#include "tests/catch.hpp"

namespace mpzero::io {
namespace {

constexpr int64_t kMebibyte = 1 << 20;
constexpr double kUnlimited = WritePace::kUnlimited;

double seconds_of(const std::function<void()>& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

void write(WritePace& pace, int64_t bytes, const std::stop_token& stop = {}) {
  pace.wait(bytes, stop);
  pace.written(bytes);
}

// A machine on which steps take a second plus `cost` seconds for each byte that is written during the step, with a disk
// that writes `disk` bytes per second.
struct Machine {
  double disk = 2e9;
  double cost = 0;  // seconds per byte
  double rate = kUnlimited;
  int64_t written = 0;

  // Returns the seconds of a step.
  double step(int64_t total) {
    const double speed = std::min(rate, disk);
    const auto bytes = std::min(static_cast<int64_t>(speed / (1 - std::min(0.9, cost * speed))), total - written);
    written += bytes;
    return 1 + cost * static_cast<double>(bytes);
  }
};

// Steps until everything is written. `slowest_end`: the mean of the last half of them.
std::vector<double> save(SaveThrottle& throttle, Machine& machine, int64_t total, int64_t steps_until_next) {
  throttle.begin(total, steps_until_next);
  machine.rate = kUnlimited;
  machine.written = 0;
  std::vector<double> steps;
  while (machine.written < total && steps.size() < 10'000) {
    steps.push_back(machine.step(total));
    machine.rate = throttle.step_during_save(steps.back(), machine.written);
  }
  return steps;
}

double mean_from(const std::vector<double>& steps, size_t first) {
  double sum = 0;
  for (size_t i = first; i < steps.size(); ++i) sum += steps[i];
  return sum / static_cast<double>(steps.size() - first);
}

}  // namespace

TEST_CASE("without a rate no thread waits, and with a rate all threads together are limited") {
  WritePace pace;
  // At a rate this would take days: the program's time limit would end it.
  for (int i = 0; i < 1000; ++i) write(pace, kMebibyte);
  CHECK(pace.bytes() == 1000 * kMebibyte);

  pace.set_rate(static_cast<double>(40 * kMebibyte));
  std::atomic<int> pieces{0};
  const double seconds = seconds_of([&] {
    std::vector<std::jthread> threads;
    for (int t = 0; t < 3; ++t) {
      threads.emplace_back([&] {
        while (pieces.fetch_add(1) < 12) write(pace, kMebibyte);
      });
    }
  });
  // The last piece may begin when the time of the eleven before it has passed.
  CHECK(seconds >= 11.0 / 40 * 0.99);
  CHECK(pace.bytes() == 1012 * kMebibyte);
}

TEST_CASE("waiting threads continue at a new rate, and a stop ends the wait") {
  WritePace pace;
  pace.set_rate(1);
  std::stop_source stop;
  std::atomic<int> done{0};
  std::jthread stopped([&] {
    write(pace, kMebibyte);  // the first piece need not wait
    ++done;
    write(pace, kMebibyte, stop.get_token());
    ++done;
  });
  while (done == 0) std::this_thread::yield();
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  CHECK(done == 1);
  stop.request_stop();
  stopped.join();
  CHECK(done == 2);

  std::jthread waiting([&] { write(pace, 1); });
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  CHECK(pace.bytes() == 2 * kMebibyte);
  pace.set_rate(kUnlimited);
  waiting.join();
  CHECK(pace.bytes() == 2 * kMebibyte + 1);
}

TEST_CASE("the time of a save at full speed is estimated from its unthrottled part") {
  const auto pause = [] { std::this_thread::sleep_for(std::chrono::milliseconds(30)); };
  WritePace pace;
  CHECK(pace.without_limit(5) == 5);
  const double at_full_speed = seconds_of([&] {
    pace.wait(3 * kMebibyte, {});
    pause();
    pace.written(3 * kMebibyte);
    CHECK(pace.without_limit(5) == 5);
    pace.set_rate(static_cast<double>(2 * kMebibyte));
  });
  const double held_back = seconds_of([&] {
    write(pace, kMebibyte);
    write(pace, kMebibyte);
  });
  CHECK(held_back >= 0.49);
  // The last two would have taken two thirds of the time of the first three.
  CHECK(pace.without_limit(5) <= 5 - 0.49 + at_full_speed * 2 / 3);
  CHECK(pace.without_limit(5) >= 5 - held_back - at_full_speed);

  // Bytes in the page cache say nothing about the disk.
  pace.written(1, /*on_disk=*/false);
  CHECK(pace.without_limit(5) == 5);

  // Nothing was written at full speed, so the speed is unknown.
  WritePace limited;
  limited.set_rate(static_cast<double>(kMebibyte));
  write(limited, kMebibyte / 10);
  write(limited, kMebibyte / 10);
  CHECK(limited.without_limit(5) == 5);
}

TEST_CASE("a save without cost, or with an unknown cost, runs at full speed") {
  SaveThrottle throttle;
  Machine machine;
  for (int i = 0; i < 40; ++i) throttle.step_alone(i % 2 == 0 ? 0.99 : 1.01);
  CHECK(save(throttle, machine, 100'000'000'000, 0).size() == 50);

  SaveThrottle unknown;
  for (int i = 0; i < 4; ++i) unknown.step_alone(1);
  machine.cost = 0.1e-9;
  const auto steps = save(unknown, machine, 100'000'000'000, 0);
  CHECK(machine.rate == kUnlimited);
  CHECK(mean_from(steps, 0) > 1.1);
}

TEST_CASE("a save that slows down steps is throttled to the limit, and the next save starts at that rate") {
  // 10% at full speed.
  Machine machine{.cost = 0.05e-9};
  SaveThrottle throttle;
  for (int i = 0; i < 40; ++i) throttle.step_alone(1);
  const auto first = save(throttle, machine, 200'000'000'000, 0);
  CHECK(first.size() > 300);
  CHECK(first.size() < 700);
  CHECK(first[3] > 1.08);
  CHECK(mean_from(first, 10) == Approx(1.02).margin(0.005));

  const auto second = save(throttle, machine, 200'000'000'000, 0);
  CHECK(second[0] > 1.08);  // measures the disk's current speed
  CHECK(mean_from(second, 3) == Approx(1.02).margin(0.005));

  // Once it costs less it becomes faster.
  machine.cost = 0.001e-9;
  const auto third = save(throttle, machine, 400'000'000'000, 0);
  CHECK(third.size() < 300);
}

TEST_CASE("noisy step times do not disturb the rate") {
  Machine machine{.cost = 0.05e-9};
  SaveThrottle throttle;
  uint32_t random = 1;
  const auto noise = [&] {
    random = random * 1664525 + 1013904223;
    return 0.04 * (static_cast<double>(random >> 8) / (1 << 24) - 0.5);
  };
  for (int i = 0; i < 40; ++i) throttle.step_alone(1 + noise());
  throttle.begin(400'000'000'000, 0);
  double sum = 0;
  int steps = 0;
  int long_ones = 0;
  while (machine.written < 400'000'000'000 && steps < 10'000) {
    const double seconds = machine.step(400'000'000'000);
    ++steps;
    sum += seconds;
    long_ones += seconds > 1.05 ? 1 : 0;
    // Some steps are long for other reasons.
    machine.rate = throttle.step_during_save(seconds + noise() + (steps % 7 == 0 ? 0.3 : 0), machine.written);
  }
  CHECK(sum / steps < 1.035);
  CHECK(sum / steps > 1.005);
  CHECK(long_ones < steps / 10);
}

TEST_CASE("a save ends before the next one is due, and its time is at most a few times the minimum") {
  Machine machine{.cost = 0.2e-9};
  const int64_t total = 100'000'000'000;  // 50 s at full speed, 30 steps
  for (const int64_t due : {60, 100, 200}) {
    SaveThrottle throttle;
    for (int i = 0; i < 40; ++i) throttle.step_alone(1);
    const auto steps = save(throttle, machine, total, due);
    CHECK(static_cast<int64_t>(steps.size()) < due);
  }
  SaveThrottle throttle;
  for (int i = 0; i < 40; ++i) throttle.step_alone(1);
  const auto steps = save(throttle, machine, total, 0);
  const double seconds = mean_from(steps, 0) * static_cast<double>(steps.size());
  CHECK(seconds > 5 * 50);
  CHECK(seconds < 8 * 50 + 5);
}

TEST_CASE("writes of other ranks are not attributed to this rank's bytes") {
  SaveThrottle throttle;
  for (int i = 0; i < 40; ++i) throttle.step_alone(1);
  throttle.begin(1000, 0);
  for (int i = 0; i < 50; ++i) CHECK(throttle.step_during_save(1.2, 1000) == kUnlimited);
}

}  // namespace mpzero::io
