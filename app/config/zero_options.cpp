#include "app/config/zero_options.hpp"

#include <fmt/ranges.h>

#include "base/error.hpp"
#include "base/words.hpp"

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
          .compression = {.gradient_bits = static_cast<int>(config.zero.quantized_gradient_bits),
                          .weights = config.zero.quantized_weights,
                          .seed = config.seed},
          .limits = config.zero.limits,
          .adamw = {.beta1 = config.optimizer.beta1,
                    .beta2 = config.optimizer.beta2,
                    .eps = config.optimizer.eps,
                    .weight_decay = config.optimizer.weight_decay,
                    .bias_correction = config.optimizer.bias_correction},
          .no_decay = config.optimizer.no_decay,
          .gradient_clipping = config.gradient_clipping};
}

parallel::ParallelLayout parallel_layout(const RunConfig& config, const RankPlacement& ranks) {
  int64_t size = config.zero.ranks_per_node.value_or(kRanksOfHost);
  if (size == kRanksOfHost) size = ranks.per_host.value_or(kOneLevel);
  if (size == kOneLevel) size = ranks.world_size;
  if (ranks.world_size % size != 0) {
    throw_user_error(
        "{}: {} is {}, which does not divide the run's {} ranks; give a divisor, or \"auto\" for a node "
        "per host",
        config.ds_config_path, config.zero.ranks_per_node_key, size, ranks.world_size);
  }
  return {.nodes = static_cast<int>(ranks.world_size / size), .ranks_per_node = static_cast<int>(size)};
}

std::string describe_compression(const RunConfig& config) {
  std::vector<std::string> parts;
  if (config.zero.quantized_gradient_bits > 0) {
    parts.push_back(fmt::format("gradients in {} bits", config.zero.quantized_gradient_bits));
  }
  if (config.zero.quantized_weights) parts.emplace_back("parameters in 8 bits");
  return fmt::to_string(fmt::join(parts, " and "));
}

std::string describe_levels(const parallel::ParallelLayout& layout) {
  if (layout.nodes == 1) return "";
  return fmt::format(" over {} nodes of {}", layout.nodes, counted(layout.ranks_per_node, "rank"));
}

}  // namespace mpzero
