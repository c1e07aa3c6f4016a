#include "bench/stopwatch.hpp"

#include <ATen/cuda/CUDAEvent.h>
#include <ATen/cuda/Sleep.h>
#include <c10/cuda/CUDAFunctions.h>

#include <algorithm>
#include <chrono>
#include <cmath>

namespace mpzero::bench {
namespace {

constexpr double kCyclesPerSecond = 2e9;     // no GPU is much faster than this
constexpr double kRotatedBytes = 256 << 20;  // several times the L2 cache of an H200

using Clock = std::chrono::steady_clock;

struct Round {
  at::cuda::CUDAEvent begin{cudaEventDefault}, end{cudaEventDefault};
  double seconds() const { return begin.elapsed_time(end) * 1e-3; }
};

}  // namespace

Timing measure(int sets, int repeats, const Body& body) {
  std::vector<std::vector<at::Tensor>> kept(static_cast<size_t>(sets));
  const auto round = [&] {
    for (int set = 0; set < sets; ++set) kept[static_cast<size_t>(set)] = body(set);
  };
  round();
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
  const double host = std::chrono::duration<double>(Clock::now() - start).count();
  c10::cuda::device_synchronize();

  // Only as long as the GPU would wait: longer pauses would let it cool down and run faster than in training.
  const double ahead = std::clamp(1.5 * host - first.seconds(), 0.0, 0.02) + 2e-5;
  std::vector<Round> rounds;
  for (int repeat = 0; repeat < repeats; ++repeat) {
    at::cuda::sleep(static_cast<int64_t>(ahead * kCyclesPerSecond));
    rounds.push_back(timed_round());
  }
  c10::cuda::device_synchronize();
  std::vector<double> seconds;
  for (const Round& timed : rounds) seconds.push_back(timed.seconds() / sets);
  std::nth_element(seconds.begin(), seconds.begin() + repeats / 2, seconds.end());
  return {seconds[static_cast<size_t>(repeats / 2)], host / sets};
}

int sets_for(double bytes) { return static_cast<int>(std::clamp(std::ceil(kRotatedBytes / bytes), 2.0, 12.0)); }

}  // namespace mpzero::bench
