#include "app/measure/stopwatch.hpp"

#include <ATen/cuda/Sleep.h>
#include <c10/cuda/CUDAEvent.h>
#include <c10/cuda/CUDAFunctions.h>

#include <algorithm>
#include <chrono>
#include <cmath>

namespace mpzero::measure {
namespace {

constexpr double kCyclesPerSecond = 2e9;  // approximately the highest GPU clock

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

struct Round {
  c10::cuda::CUDAEvent begin{cudaEventDefault}, end{cudaEventDefault};
  double seconds() const { return begin.elapsed_time(end) * 1e-3; }
};

// The next two functions return the timing of `round`, which makes `sets` calls.
Timing measure_on_gpu(const Effort& effort, const std::function<void()>& round) {
  const auto timed_round = [&] {
    Round made;
    made.begin.record();
    round();
    made.end.record();
    return made;
  };
  c10::cuda::device_synchronize();
  const auto start = Clock::now();
  const Round first = timed_round();
  const double host = seconds_since(start);
  c10::cuda::device_synchronize();

  const double ahead = host_lead(host, first.seconds());
  std::vector<Round> rounds;
  const int repeats = repeats_for(effort, first.seconds() + ahead);
  for (int repeat = 0; repeat < repeats; ++repeat) {
    sleep_on_gpu(ahead);
    rounds.push_back(timed_round());
  }
  c10::cuda::device_synchronize();
  std::vector<double> seconds;
  for (const Round& timed : rounds) seconds.push_back(timed.seconds());
  Timing timing = timing_of(std::move(seconds), at::kCUDA);
  timing.host_seconds = host;
  return timing;
}

Timing measure_on_cpu(const Effort& effort, const std::function<void()>& round) {
  std::vector<double> seconds;
  int repeats = 1;
  for (int repeat = 0; repeat < repeats; ++repeat) {
    const auto start = Clock::now();
    round();
    seconds.push_back(seconds_since(start));
    if (repeat == 0) repeats = repeats_for(effort, seconds.front());
  }
  return timing_of(std::move(seconds), at::kCPU);
}

}  // namespace

int repeats_for(const Effort& effort, double round_seconds) {
  const double fit = round_seconds > 0 ? effort.seconds / round_seconds : effort.repeats;
  return std::max({1, effort.least, fit < effort.repeats ? static_cast<int>(fit) : effort.repeats});
}

Timing timing_of(std::vector<double> seconds, at::Device device) {
  // The lower quartile excludes delays caused by other programs on the same cores.
  const double part = device.is_cuda() ? 0.5 : 0.25;
  std::sort(seconds.begin(), seconds.end());
  const double typical = seconds[static_cast<size_t>(part * static_cast<double>(seconds.size()))];
  const double between = seconds[seconds.size() * 3 / 4] - seconds[seconds.size() / 4];
  return {.seconds = typical,
          .host_seconds = typical,
          .spread = seconds.size() >= Timing::kForSpread && typical > 0 ? between / typical : 0};
}

double host_lead(double host_seconds, double device_seconds) {
  // Keep the sleep short: a GPU that cools down runs faster than in training.
  return std::clamp(1.5 * host_seconds - device_seconds, 0.0, 0.02) + 2e-5;
}

void sleep_on_gpu(double seconds) { at::cuda::sleep(static_cast<int64_t>(seconds * kCyclesPerSecond)); }

Timing measure(at::Device device, int sets, const Effort& effort, const Body& body) {
  std::vector<std::vector<at::Tensor>> kept(static_cast<size_t>(sets));
  const auto round = [&] {
    for (int set = 0; set < sets; ++set) kept[static_cast<size_t>(set)] = body(set);
  };
  round();
  const Timing timing = device.is_cuda() ? measure_on_gpu(effort, round) : measure_on_cpu(effort, round);
  return {timing.seconds / sets, timing.host_seconds / sets, timing.spread};
}

int sets_for(double bytes) {
  return static_cast<int>(std::clamp(std::ceil(static_cast<double>(kEvictedBytes) / bytes), 2.0, 12.0));
}

}  // namespace mpzero::measure
