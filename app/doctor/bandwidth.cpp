#include "app/doctor/bandwidth.hpp"

#include <ATen/ops/zeros.h>
#include <c10/cuda/CUDAFunctions.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <functional>

#include "app/machine/system.hpp"
#include "base/collectives.hpp"
#include "base/text/byte_size.hpp"

namespace mpzero::doctor {
namespace {

using Clock = std::chrono::steady_clock;

void finish(const at::Device& device) {
  if (device.is_cuda()) c10::cuda::device_synchronize();
}

// Returns the seconds per call of `collective` on the slowest rank, averaged over `repetitions` calls.
double time(const std::function<void()>& collective, ProcessGroup& group, const at::Device& device, int repetitions) {
  const auto measure = [&] {
    group.barrier();
    const Clock::time_point start = Clock::now();
    for (int i = 0; i < repetitions; ++i) collective();
    finish(device);
    const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
    return max(group, seconds);
  };
  measure();  // warmup: establishes connections
  return typical_seconds(measure) / repetitions;
}

std::string rate_text(const Measurement& measurement) {
  return fmt::format("{} {:.2f} GB/s", bytes_text(measurement.bytes), measurement.bytes_per_second / 1e9);
}

}  // namespace

double typical_seconds(const std::function<double()>& measure) {
  constexpr size_t kLeast = 3, kMost = 9;
  constexpr double kEnough = 1;
  std::vector<double> all;
  double sum = 0;
  while (all.size() < kLeast || (sum < kEnough && all.size() < kMost)) {
    all.push_back(measure());
    sum += all.back();
  }
  const auto middle = all.begin() + static_cast<std::ptrdiff_t>(all.size() / 2);
  std::nth_element(all.begin(), middle, all.end());
  return *middle;
}

std::vector<Measurement> measure_bandwidth(parallel::Communicator& communicator, ProcessGroup& group,
                                           const at::Device& device) {
  // The largest size corresponds to a gather or reduction of several layers.
  const std::vector<int64_t> sizes = device.is_cuda() ? std::vector<int64_t>{1 * kMebi, 64 * kMebi, 512 * kMebi}
                                                      : std::vector<int64_t>{1 * kMebi, 16 * kMebi};
  constexpr int64_t kElement = 2;
  const int64_t ranks = communicator.world_size();
  const auto shard_numel_of = [&](int64_t bytes) { return bytes / kElement / ranks; };
  const auto options = at::TensorOptions().dtype(at::kBFloat16).device(device);
  const at::Tensor buffer = communicator.buffer(shard_numel_of(sizes.back()) * ranks, options);
  communicator.reserve_reduce_scatter(buffer.numel(), options);
  const at::Tensor sum = at::zeros({shard_numel_of(sizes.back())}, options);
  std::vector<Measurement> measurements;
  for (const int64_t bytes : sizes) {
    const int64_t shard_numel = shard_numel_of(bytes);
    const at::Tensor full = buffer.narrow(0, 0, shard_numel * ranks);
    const at::Tensor shard = full.narrow(0, communicator.rank() * shard_numel, shard_numel);
    const int repetitions = bytes <= 16 * kMebi ? 10 : 2;
    const double moved = static_cast<double>(shard_numel * kElement * (ranks - 1));
    const double gather = time([&] { communicator.all_gather(shard, full)->wait(); }, group, device, repetitions);
    const double scatter = time([&] { communicator.reduce_scatter_sum(full, sum.narrow(0, 0, shard_numel))->wait(); },
                                group, device, repetitions);
    measurements.push_back({.operation = "all-gather", .bytes = bytes, .bytes_per_second = moved / gather});
    measurements.push_back({.operation = "reduce-scatter", .bytes = bytes, .bytes_per_second = moved / scatter});
  }
  return measurements;
}

Finding judge_bandwidth(Check check, const std::vector<Measurement>& measurements, double promised,
                        const std::string& promised_by) {
  // A fraction below kAnotherNetwork means that NCCL uses a different network (TCP has a tenth of EFA's bandwidth). On
  // a healthy network, NCCL's collectives reach 70 to 90% of the specification.
  constexpr double kAnotherNetwork = 0.2, kHealthy = 0.5;
  std::string seen;
  double slowest = 0;
  for (const Measurement& measurement : measurements) {
    if (measurement.bytes == measurements.back().bytes) {
      slowest = slowest == 0 ? measurement.bytes_per_second : std::min(slowest, measurement.bytes_per_second);
    }
  }
  for (const char* kind : {"all-gather", "reduce-scatter"}) {
    seen += fmt::format("{}{}", seen.empty() ? "" : "; ", kind);
    for (const Measurement& measurement : measurements) {
      if (measurement.operation == kind) seen += fmt::format(" {},", rate_text(measurement));
    }
    if (seen.back() == ',') seen.pop_back();
  }
  if (promised == 0) return ok(check, seen);
  seen += fmt::format(" ({:.0f}% of the {:.0f} GB/s of {})", 100 * slowest / promised, promised / 1e9, promised_by);
  if (slowest < kAnotherNetwork * promised) return failure(check, seen);
  if (slowest < kHealthy * promised) return warning(check, seen);
  return ok(check, seen);
}

}  // namespace mpzero::doctor
