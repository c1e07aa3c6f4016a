#include "app/measure/adamw_run.hpp"

#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "app/measure/stopwatch.hpp"
#include "parallel/host/host_memory.hpp"
#include "parallel/host/thread_team.hpp"
#include "parallel/optimizer/adamw.hpp"
#include "parallel/optimizer/adamw_kernels.hpp"

namespace mpzero::measure {
namespace {

constexpr Effort kUpdateEffort{.repeats = 10, .seconds = 0.5, .least = 3};

parallel::AdamWUpdate an_update() { return parallel::adamw_update({.weight_decay = 0.1}, 1e-5, 10, 1.0); }

// Copies gradients to the host and parameters to the device on two streams, as training does during updates.
class Transfers {
 public:
  Transfers(at::Device device, at::Tensor gradient, at::Tensor parameter)
      : gradient_(std::move(gradient)),
        parameter_(std::move(parameter)),
        gradient_on_device_(gradient_.to(device)),
        parameter_on_device_(parameter_.to(device)),
        down_(c10::cuda::getStreamFromPool(/*isHighPriority=*/false, device.index())),
        up_(c10::cuda::getStreamFromPool(/*isHighPriority=*/false, device.index())) {}
  ~Transfers() { wait(); }
  Transfers(const Transfers&) = delete;
  Transfers& operator=(const Transfers&) = delete;
  // Waits for the previous copies.
  void start() {
    wait();
    {
      const c10::cuda::CUDAStreamGuard guard(down_);
      gradient_.copy_(gradient_on_device_, /*non_blocking=*/true);
    }
    const c10::cuda::CUDAStreamGuard guard(up_);
    parameter_on_device_.copy_(parameter_, /*non_blocking=*/true);
  }

 private:
  void wait() const {
    down_.synchronize();
    up_.synchronize();
  }

  at::Tensor gradient_, parameter_, gradient_on_device_, parameter_on_device_;
  c10::cuda::CUDAStream down_, up_;
};

}  // namespace

double adamw_seconds(at::Device device, int64_t parameters) {
  const auto options = at::TensorOptions().device(device);
  const auto state = [&] { return at::zeros({parameters}, options.dtype(at::kFloat)); };
  const parallel::AdamWTensors tensors{.gradient = at::full({parameters}, 0.01, options.dtype(at::kBFloat16)),
                                       .master = state(),
                                       .exp_avg = state(),
                                       .exp_avg_sq = state(),
                                       .parameter = at::zeros({parameters}, options.dtype(at::kBFloat16))};
  return measure(device, 1, kUpdateEffort,
                 [&](int) {
                   parallel::adamw(tensors, an_update());
                   return std::vector<at::Tensor>{};
                 })
      .seconds;
}

double host_adamw_seconds(int64_t parameters, int threads, at::Device device) {
  parallel::ThreadTeam team(threads);
  const auto tensor = [&](at::ScalarType type, bool pinned = false) {
    return parallel::host_tensor(parameters, type, pinned, &team);
  };
  const parallel::AdamWTensors tensors{.gradient = tensor(at::kBFloat16).fill_(0.01),
                                       .master = tensor(at::kFloat),
                                       .exp_avg = tensor(at::kFloat),
                                       .exp_avg_sq = tensor(at::kFloat),
                                       .parameter = tensor(at::kBFloat16)};
  const parallel::AdamWSpans spans = parallel::spans_of(tensors);
  constexpr int64_t kBlock = parallel::kHostBlock;
  std::optional<Transfers> transfers;
  if (device.is_cuda()) transfers.emplace(device, tensor(at::kBFloat16, true), tensor(at::kBFloat16, true));
  return measure(at::kCPU, 1, kUpdateEffort,
                 [&](int) {
                   if (transfers) transfers->start();
                   team.run((parameters + kBlock - 1) / kBlock, [&](int64_t block) {
                     parallel::adamw_host_range(spans, an_update(), block * kBlock,
                                                std::min((block + 1) * kBlock, parameters));
                   });
                   return std::vector<at::Tensor>{};
                 })
      .seconds;
}

double sum_of_squares_seconds(at::Device device, int64_t gradients) {
  const at::Tensor gradient = at::full({gradients}, 0.01, at::TensorOptions().device(device).dtype(at::kBFloat16));
  return measure(device, 1, kUpdateEffort,
                 [&](int) { return std::vector<at::Tensor>{parallel::sum_of_squares(gradient)}; })
      .seconds;
}

}  // namespace mpzero::measure
