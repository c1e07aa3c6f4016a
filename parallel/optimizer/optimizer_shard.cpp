#include "parallel/optimizer/optimizer_shard.hpp"

#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros.h>

#include "parallel/host/host_memory.hpp"
#include "parallel/streams/streams.hpp"

namespace mpzero::parallel {

namespace {

bool is_on_host(const OptimizerShard::Options& options) {
  return options.placement == Placement::kHost && has_streams(options.device);
}

// `make`: creates a tensor with a given dtype.
template <typename Make>
OptimizerStates make_states(at::ScalarType moment_dtype, const Make& make) {
  return {.master = make(at::kFloat), .exp_avg = make(moment_dtype), .exp_avg_sq = make(moment_dtype)};
}

}  // namespace

OptimizerStates make_host_states(int64_t numel, at::ScalarType moment_dtype, ThreadTeam* team) {
  return make_states(moment_dtype,
                     [&](at::ScalarType dtype) { return host_tensor(numel, dtype, /*pinned=*/false, team); });
}

OptimizerShard::OptimizerShard(int64_t numel, const Options& options)
    : on_host_(is_on_host(options)),
      first_(options.first),
      decay_(options.decay.runs().empty() ? DecayRanges(numel) : options.decay) {
  if (!on_host_) {
    states_ = make_states(options.moment_dtype, [&](at::ScalarType dtype) {
      return at::zeros({numel}, at::TensorOptions().dtype(dtype).device(options.device));
    });
  } else if (options.device.type() == kSimulatedDevice) {
    states_ = make_states(options.moment_dtype,
                          [&](at::ScalarType dtype) { return host_tensor_without_memory(numel, dtype); });
  } else {
    states_ = make_host_states(numel, options.moment_dtype, options.team);
  }
}

void OptimizerShard::update(const AdamWUpdate& update, const at::Tensor& gradient, const at::Tensor& parameter) {
  at::Tensor rounded = parameter;
  if (parameter.device() != states_.master.device()) {
    // The update writes every element, even if the gradient is not finite.
    rounded = at::empty_like(parameter, states_.master.options().dtype(parameter.scalar_type()));
  }
  decay_.visit(0, numel(), update, [&](int64_t begin, int64_t end, const AdamWUpdate& own) {
    const auto part = [&](const at::Tensor& tensor) { return tensor.narrow(0, begin, end - begin); };
    adamw({.gradient = part(gradient),
           .master = part(states_.master),
           .exp_avg = part(states_.exp_avg),
           .exp_avg_sq = part(states_.exp_avg_sq),
           .parameter = part(rounded),
           .first = first_ + begin},
          own);
  });
  if (!rounded.is_same(parameter)) parameter.copy_(rounded, /*non_blocking=*/true);
}

at::Tensor OptimizerShard::first(StateKind kind, int64_t count) const { return states_[kind].narrow(0, 0, count); }

void OptimizerShard::move_to(at::Device device) {
  for (at::Tensor* state : {&states_.master, &states_.exp_avg, &states_.exp_avg_sq}) *state = state->to(device);
  on_host_ = false;
}

MemoryUse OptimizerShard::memory_use() const {
  if (on_host_) return {.host_optimizer_states = states_.nbytes()};
  return {.optimizer_states = states_.nbytes()};
}

}  // namespace mpzero::parallel
