#include "parallel/optimizer_shard.hpp"

#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros.h>
#include <c10/core/StreamGuard.h>

#include "parallel/host_memory.hpp"

namespace mpzero::parallel {

OptimizerShard::OptimizerShard(int64_t numel, const Options& options)
    : staged_(options.placement == Placement::kHost && options.device.is_cuda()),
      first_(options.first),
      copy_stream_(options.copy_stream) {
  const auto make_state = [&](at::ScalarType dtype) {
    return staged_ ? host_tensor(numel, dtype, options.pinned)
                   : at::zeros({numel}, at::TensorOptions().dtype(dtype).device(options.device));
  };
  master_ = make_state(at::kFloat);
  exp_avg_ = make_state(options.moment_dtype);
  exp_avg_sq_ = make_state(options.moment_dtype);
  if (staged_) {
    gradient_ = host_tensor(numel, options.gradient_dtype, options.pinned);
    if (options.parameter_placement == Placement::kDevice) {
      parameter_staging_ = host_tensor(numel, options.parameter_dtype, options.pinned);
    }
  }
}

void OptimizerShard::fetch_gradient(const at::Tensor& gradient) {
  if (!staged_) {
    gradient_ = gradient;
    return;
  }
  at::cuda::CUDAEvent gradient_ready;
  gradient_ready.record(c10::cuda::getCurrentCUDAStream());
  const c10::cuda::CUDAStream stream = copy_stream_.value_or(c10::cuda::getCurrentCUDAStream());
  gradient_ready.block(stream);
  const c10::StreamGuard on_copy_stream(stream);
  gradient_.copy_(gradient, /*non_blocking=*/true);
  gradient_arrived_.record(stream);
}

void OptimizerShard::update(const AdamWUpdate& update, const at::Tensor& parameter) {
  if (staged_) gradient_arrived_.synchronize();
  // States and parameters may live on different sides of the bus.
  at::Tensor rounded = parameter;
  if (parameter.device() != master_.device()) {
    rounded =
        staged_ ? parameter_staging_ : at::empty_like(parameter, master_.options().dtype(parameter.scalar_type()));
  }
  adamw({.gradient = gradient_,
         .master = master_,
         .exp_avg = exp_avg_,
         .exp_avg_sq = exp_avg_sq_,
         .parameter = rounded,
         .first = first_},
        update);
  if (!rounded.is_same(parameter)) parameter.copy_(rounded, /*non_blocking=*/true);
}

at::Tensor OptimizerShard::first(StateKind kind, int64_t count) const {
  const at::Tensor& state = kind == StateKind::kMaster ? master_ : kind == StateKind::kExpAvg ? exp_avg_ : exp_avg_sq_;
  return state.narrow(0, 0, count);
}

void OptimizerShard::publish(const at::Tensor& parameter) const { parameter.copy_(master_); }

MemoryUse OptimizerShard::memory_use() const {
  const auto states = static_cast<int64_t>(master_.nbytes() + exp_avg_.nbytes() + exp_avg_sq_.nbytes());
  if (!staged_) return {.optimizer_states = states};
  const size_t staging = gradient_.nbytes() + (parameter_staging_.defined() ? parameter_staging_.nbytes() : 0);
  return {.host_optimizer_states = states, .host_staging = static_cast<int64_t>(staging)};
}

}  // namespace mpzero::parallel
