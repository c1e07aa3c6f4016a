#include "bench/stopwatch.hpp"

#include <ATen/cuda/CUDAEvent.h>
#include <ATen/cuda/Sleep.h>
#include <c10/cuda/CUDAFunctions.h>

#include <algorithm>
#include <chrono>
#include <cmath>

namespace mpzero::bench {
namespace {

constexpr double kCyclesPerSecond = 2e9;     // no GPU runs faster than this by much
constexpr double kRotatedBytes = 256 << 20;  // several times the L2 cache of an H200

using Clock = std::chrono::steady_clock;

}  // namespace

Timing measure(int sets, int repeats, const Body& body) {
  std::vector<std::vector<at::Tensor>> kept(static_cast<size_t>(sets));
  const auto round = [&] {
    for (int set = 0; set < sets; ++set) kept[static_cast<size_t>(set)] = body(set);
  };
  round();
  round();
  c10::cuda::device_synchronize();
  const auto start = Clock::now();
  round();
  const double host = std::chrono::duration<double>(Clock::now() - start).count();
  c10::cuda::device_synchronize();

  const auto pause = static_cast<int64_t>(std::min(1.5 * host + 2e-5, 0.05) * kCyclesPerSecond);
  std::vector<double> seconds;
  for (int repeat = 0; repeat < repeats; ++repeat) {
    at::cuda::CUDAEvent begin(cudaEventDefault), end(cudaEventDefault);
    at::cuda::sleep(pause);
    begin.record();
    round();
    end.record();
    end.synchronize();
    seconds.push_back(begin.elapsed_time(end) * 1e-3 / sets);
  }
  std::nth_element(seconds.begin(), seconds.begin() + repeats / 2, seconds.end());
  return {seconds[static_cast<size_t>(repeats / 2)], host / sets};
}

int sets_for(double bytes) { return static_cast<int>(std::clamp(std::ceil(kRotatedBytes / bytes), 2.0, 12.0)); }

}  // namespace mpzero::bench
