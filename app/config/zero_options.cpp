#include "app/config/zero_options.hpp"

namespace mpzero {
namespace {

at::ScalarType as_scalar_type(const std::string& name) { return name == "fp32" ? at::kFloat : at::kBFloat16; }

}  // namespace

parallel::ZeroOptions zero_options(const RunConfig& config, at::Device device) {
  const auto placement = [](bool offload) {
    return offload ? parallel::Placement::kHost : parallel::Placement::kDevice;
  };
  return {.stage = config.zero.stage,
          .device = device,
          .dtype = as_scalar_type(config.dtype),
          .communication_dtype = as_scalar_type(config.communication_dtype),
          .accumulation_dtype = as_scalar_type(config.accumulation_dtype),
          .moment_dtype = as_scalar_type(config.moment_dtype),
          .gradient_accumulation_steps = config.gradient_accumulation_steps,
          .optimizer_placement = placement(config.zero.offload_optimizer),
          .optimizer_host_ratio = config.zero.offload_optimizer_ratio,
          .parameter_placement = placement(config.zero.offload_param),
          .pin_memory = config.zero.pin_memory,
          .overlap = config.zero.overlap_comm,
          .limits = config.zero.limits,
          .adamw = {.beta1 = config.optimizer.beta1,
                    .beta2 = config.optimizer.beta2,
                    .eps = config.optimizer.eps,
                    .weight_decay = config.optimizer.weight_decay,
                    .bias_correction = config.optimizer.bias_correction},
          .no_decay = config.optimizer.no_decay,
          .gradient_clipping = config.gradient_clipping};
}

}  // namespace mpzero
