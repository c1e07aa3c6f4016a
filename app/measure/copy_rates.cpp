#include "app/measure/copy_rates.hpp"

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <c10/cuda/CUDAEvent.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "app/measure/stopwatch.hpp"
#include "parallel/host/host_memory.hpp"
#include "parallel/host/thread_team.hpp"

namespace mpzero::measure {
namespace {

constexpr Effort kCopyEffort{.repeats = 8, .seconds = 0.5, .least = 3};
constexpr int64_t kBlock = int64_t{1} << 20;

// Runs two concurrent copies, each on its own stream. The current stream waits for both copies.
void copy_both_ways(at::Tensor& device_a, const at::Tensor& host_a, at::Tensor& host_b, const at::Tensor& device_b,
                    const std::vector<c10::cuda::CUDAStream>& streams) {
  c10::cuda::CUDAEvent begin;
  begin.record();
  for (const bool up : {true, false}) {
    const c10::cuda::CUDAStream stream = streams[up ? 0 : 1];
    c10::cuda::CUDAEvent end;
    {
      const c10::cuda::CUDAStreamGuard guard(stream);
      begin.block(stream);
      up ? device_a.copy_(host_a, /*non_blocking=*/true) : host_b.copy_(device_b, /*non_blocking=*/true);
      end.record(stream);
    }
    end.block(c10::cuda::getCurrentCUDAStream());
  }
}

}  // namespace

CopyRates copy_rates(at::Device device, int64_t bytes) {
  const auto options = at::TensorOptions().dtype(at::kByte).device(device);
  const auto size = static_cast<double>(bytes);
  const auto rate_of = [&](double moved, const std::function<void()>& copy) {
    const Timing timing = measure(device, 1, kCopyEffort, [&](int) {
      copy();
      return std::vector<at::Tensor>{};
    });
    return moved / timing.seconds;
  };
  CopyRates rates;
  if (device.is_cpu()) {
    rates.on_device = host_copy_rate(bytes);
    return rates;
  }
  at::Tensor a = at::zeros({bytes}, options), b = at::zeros({bytes}, options);
  rates.on_device = rate_of(2 * size, [&] { a.copy_(b); });
  at::Tensor host_a = parallel::host_tensor(bytes, at::kByte, /*pinned=*/true);
  at::Tensor host_b = parallel::host_tensor(bytes, at::kByte, /*pinned=*/true);
  rates.to_device = rate_of(size, [&] { a.copy_(host_a, /*non_blocking=*/true); });
  rates.from_device = rate_of(size, [&] { host_a.copy_(a, /*non_blocking=*/true); });
  const std::vector<c10::cuda::CUDAStream> streams{c10::cuda::getStreamFromPool(), c10::cuda::getStreamFromPool()};
  rates.both_ways = rate_of(2 * size, [&] { copy_both_ways(a, host_a, host_b, b, streams); });
  return rates;
}

double host_copy_rate(int64_t bytes) {
  parallel::ThreadTeam team(at::get_num_threads());
  const at::Tensor from = parallel::host_tensor(bytes, at::kByte, false, &team);
  const at::Tensor to = parallel::host_tensor(bytes, at::kByte, false, &team);
  const auto* source = static_cast<const char*>(from.const_data_ptr());
  auto* destination = static_cast<char*>(to.mutable_data_ptr());
  const Timing timing = measure(at::kCPU, 1, kCopyEffort, [&](int) {
    team.run((bytes + kBlock - 1) / kBlock, [&](int64_t block) {
      const int64_t begin = block * kBlock;
      std::memcpy(destination + begin, source + begin, static_cast<size_t>(std::min(kBlock, bytes - begin)));
    });
    return std::vector<at::Tensor>{};
  });
  return 2 * static_cast<double>(bytes) / timing.seconds;
}

}  // namespace mpzero::measure
