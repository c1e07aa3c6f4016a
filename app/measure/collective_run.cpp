#include "app/measure/collective_run.hpp"

#include <ATen/ops/zeros.h>

#include <algorithm>
#include <chrono>
#include <functional>

#include "base/collectives.hpp"

namespace mpzero::measure {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kCalls = 11;

double median_seconds(const std::function<void()>& collective, ProcessGroup& group) {
  collective();
  std::vector<double> seconds;
  for (int call = 0; call < kCalls; ++call) {
    group.barrier();
    const auto start = Clock::now();
    collective();
    seconds.push_back(std::chrono::duration<double>(Clock::now() - start).count());
  }
  std::nth_element(seconds.begin(), seconds.begin() + kCalls / 2, seconds.end());
  return max(group, seconds[kCalls / 2]);
}

}  // namespace

std::vector<CollectiveTime> collective_times(parallel::Communicator& communicator, ProcessGroup& group,
                                             const std::vector<int64_t>& sizes) {
  const int64_t ranks = communicator.world_size();
  std::vector<CollectiveTime> times;
  for (const at::ScalarType type : {at::kBFloat16, at::kFloat}) {
    for (const int64_t bytes : sizes) {
      const auto element = static_cast<int64_t>(c10::elementSize(type));
      const int64_t shard_numel = std::max<int64_t>(1, bytes / element / ranks);
      const at::Tensor full = at::zeros({shard_numel * ranks}, at::TensorOptions().dtype(type));
      const at::Tensor own = full.narrow(0, communicator.rank() * shard_numel, shard_numel);
      const auto add = [&](const char* name, const std::function<void()>& collective) {
        times.push_back({.name = name,
                         .type = type,
                         .bytes = static_cast<double>(full.nbytes()),
                         .seconds = median_seconds(collective, group)});
      };
      add("all-gather", [&] { communicator.all_gather(own, full)->wait(); });
      add("reduce-scatter", [&] { communicator.reduce_scatter_sum(full, own)->wait(); });
      add("all-reduce", [&] { communicator.all_reduce_sum(full)->wait(); });
    }
  }
  return times;
}

}  // namespace mpzero::measure
