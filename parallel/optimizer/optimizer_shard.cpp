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

// On the host the moments are fp32.
at::ScalarType type_of_moments(const OptimizerShard::Options& options) {
  return is_on_host(options) ? at::kFloat : options.moment_dtype;
}

OptimizerStates states_without_memory(int64_t numel) {
  const auto make = [&] { return host_tensor_without_memory(numel, at::kFloat); };
  return {.master = make(), .exp_avg = make(), .exp_avg_sq = make()};
}

}  // namespace

OptimizerStates make_host_states(int64_t numel, ThreadTeam* team) {
  const auto make = [&] { return host_tensor(numel, at::kFloat, /*pinned=*/false, team); };
  return {.master = make(), .exp_avg = make(), .exp_avg_sq = make()};
}

OptimizerShard::OptimizerShard(int64_t numel, const Options& options)
    : on_host_(is_on_host(options)),
      first_(options.first),
      decay_(options.decay.runs().empty() ? DecayRanges(numel) : options.decay) {
  if (on_host_) {
    states_ = options.device.type() == kSimulatedDevice ? states_without_memory(numel)
                                                        : make_host_states(numel, options.team);
    return;
  }
  const auto make = [&](at::ScalarType dtype) {
    return at::zeros({numel}, at::TensorOptions().dtype(dtype).device(options.device));
  };
  const at::ScalarType moments = type_of_moments(options);
  states_ = {.master = make(at::kFloat), .exp_avg = make(moments), .exp_avg_sq = make(moments)};
}

void OptimizerShard::update(const AdamWUpdate& update, const at::Tensor& gradient, const at::Tensor& parameter) {
  at::Tensor rounded = parameter;
  if (parameter.device() != states_.master.device()) {
    // All elements are written, whatever the gradient is.
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
