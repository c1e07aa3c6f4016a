// How fast AdamW in host memory runs by itself: bf16 gradient in, fp32 master and moments in and out, bf16 parameter
// out, 28 bytes a parameter.
//
//   build/bin/bench_host_adamw [PARAMETERS]     in ordinary memory, and in pinned memory where there is a GPU
#include <ATen/Parallel.h>
#include <ATen/ops/zeros.h>
#include <c10/cuda/CUDAFunctions.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>

#include "parallel/adamw.hpp"
#include "parallel/host_memory.hpp"

namespace mpzero::parallel {
namespace {

constexpr int kUpdates = 8;
constexpr double kBytesPerParameter = 28;

void measure(int64_t parameters, bool pinned) {
  const auto tensor = [&](at::ScalarType dtype) { return host_tensor(parameters, dtype, pinned).fill_(0.01); };
  const AdamWTensors tensors{.gradient = tensor(at::kBFloat16),
                             .master = tensor(at::kFloat),
                             .exp_avg = tensor(at::kFloat),
                             .exp_avg_sq = tensor(at::kFloat),
                             .parameter = tensor(at::kBFloat16)};
  std::vector<double> seconds;
  for (int update = 1; update <= kUpdates; ++update) {
    const auto start = std::chrono::steady_clock::now();
    adamw(tensors, adamw_update({}, 1e-4, update, 1.0));
    seconds.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }
  std::nth_element(seconds.begin(), seconds.begin() + kUpdates / 2, seconds.end());
  const double median = seconds[kUpdates / 2];
  const double rate = static_cast<double>(parameters) / median / 1e9;
  fmt::print("{} memory, {} threads: {:.1f} ms, {:.2f} Gparam/s, {:.0f} GB/s\n", pinned ? "pinned" : "ordinary",
             at::get_num_threads(), median * 1e3, rate, rate * kBytesPerParameter);
}

}  // namespace
}  // namespace mpzero::parallel

// An exception ends the measurement with its message: NOLINTNEXTLINE(bugprone-exception-escape)
int main(int argc, char** argv) {
  const int64_t parameters = argc > 1 ? std::atoll(argv[1]) : 200'000'000;
  mpzero::parallel::measure(parameters, /*pinned=*/false);
  if (c10::cuda::device_count() > 0) mpzero::parallel::measure(parameters, /*pinned=*/true);
  return 0;
}
