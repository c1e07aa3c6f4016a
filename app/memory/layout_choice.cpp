#include "app/memory/layout_choice.hpp"

#include <fmt/ranges.h>

#include "app/memory/memory_estimate.hpp"
#include "base/words.hpp"

namespace mpzero {
namespace {

std::string gigabytes(int64_t bytes) { return fmt::format("{:.2f} GB", static_cast<double>(bytes) / 1e9); }

MemoryNeed need_of(const RunSetup& setup, at::Device device, const parallel::ParallelLayout& layout) {
  const MemoryEstimate estimate(setup.config, setup.model, device, layout);
  const MemoryNeed need = estimate.need(estimate.scenario());
  // On the CPU all of it is host memory.
  return device.is_cpu() ? MemoryNeed{.device = 0, .host = need.device + need.host} : need;
}

// Of `parameters` values in this format.
int64_t bytes_of(const parallel::BlockFormat& format, int64_t parameters) {
  return format.code_bytes(parameters) + format.blocks(parameters) * static_cast<int64_t>(sizeof(float));
}

int hosts_of(const RankPlacement& ranks) { return ranks.per_host ? ranks.world_size / *ranks.per_host : 1; }

// A sentence on the keys that ask for compression, where all ranks are one node; empty: none does.
std::string without_nodes(const RunConfig& config, int hosts) {
  std::vector<std::string> keys;
  if (config.zero.quantized_gradient_bits > 0) keys.emplace_back("zero_quantized_gradients");
  if (config.zero.quantized_weights) keys.emplace_back("zero_quantized_weights");
  if (keys.empty()) return "";
  const bool could_have = hosts > 1 && config.zero.stage > 0 && !config.zero.ranks_per_node;
  return fmt::format(
      "{}: zero_optimization.{} {} no effect: all ranks are one node, and mpzero compresses between "
      "nodes only{}.",
      config.ds_config_path, fmt::join(keys, " and "), keys.size() > 1 ? "have" : "has",
      could_have ? "; \"zero_hpz_partition_size\": \"auto\" makes each host a node" : "");
}

LayoutChoice choose_nodes(const RunSetup& setup, at::Device device, const RankPlacement& ranks,
                          const MemoryNeed& limit) {
  const parallel::ParallelLayout one_level{.nodes = 1, .ranks_per_node = ranks.world_size};
  const parallel::ParallelLayout wanted = parallel_layout(setup.config, ranks);
  const parallel::ZeroOptions options = zero_options(setup.config, device);
  const int hosts = hosts_of(ranks);
  const int64_t parameters = model::num_parameters(setup.model);
  const std::string at_one_level = fmt::format("{}{}", options.stage == 3 ? "up to " : "",
                                               gigabytes(internode_bytes(options, one_level, hosts, parameters)));
  if (wanted.nodes == 1) {
    if (hosts == 1) return {.layout = wanted, .line = ""};
    return {.layout = wanted, .line = fmt::format("Between hosts: {} a host and step", at_one_level)};
  }
  const std::string compressed = describe_compression(setup.config);
  const std::string at_two = gigabytes(internode_bytes(options, wanted, hosts, parameters)) +
                             (compressed.empty() ? "" : fmt::format(" ({})", compressed));
  if (setup.config.zero.ranks_per_node.value_or(kRanksOfHost) != kRanksOfHost) {
    return {.layout = wanted, .line = fmt::format("Between nodes: {} a node and step", at_two)};
  }
  // Not run yet on hosts of several GPUs, so that it is no default there.
  if (!setup.config.zero.ranks_per_node && device.is_cuda() && wanted.ranks_per_node > 1) {
    return {.layout = one_level,
            .line = fmt::format("Between hosts: {} a host and step; \"zero_hpz_partition_size\": \"auto\" in "
                                "zero_optimization makes it {}",
                                at_one_level, at_two)};
  }
  const MemoryNeed need = need_of(setup, device, wanted);
  if (need.device <= limit.device && need.host <= limit.host) {
    return {.layout = wanted,
            .line = fmt::format("Between nodes: {} a node and step; with one level of ZeRO it would be {}", at_two,
                                at_one_level)};
  }
  const bool on_host = need.host > limit.host;
  return {
      .layout = one_level,
      .line = fmt::format("Between hosts: {} a host and step; two levels of ZeRO would make it {}, but need {} of {} "
                          "memory a rank, and there are {}",
                          at_one_level, at_two, gibibytes(on_host ? need.host : need.device), on_host ? "host" : "GPU",
                          gibibytes(on_host ? limit.host : limit.device))};
}

}  // namespace

int64_t internode_bytes(const parallel::ZeroOptions& options, const parallel::ParallelLayout& layout, int hosts,
                        int64_t parameters) {
  int64_t gradients = parameters * static_cast<int64_t>(c10::elementSize(options.communication_dtype));
  int64_t weights = parameters * static_cast<int64_t>(c10::elementSize(options.dtype));
  const int64_t steps = options.gradient_accumulation_steps;
  if (layout.nodes > 1) {
    const parallel::Compression& compression = options.compression;
    if (compression.gradient_bits > 0) gradients = bytes_of(compression.gradient_format(), parameters);
    if (compression.weights) weights = bytes_of(parallel::kInt8, parameters);
    return (gradients + weights) / layout.nodes * (layout.nodes - 1);
  }
  if (hosts == 1) return 0;
  const int64_t sums = options.stage >= 2 ? steps : 1;
  // ZeRO-3 gathers for each forward and backward pass, as far as units do not stay gathered.
  const int64_t gathers = options.stage == 3 ? 2 * steps : 1;
  return (gradients * sums + weights * gathers) / layout.ranks_per_node * (layout.ranks_per_node - 1);
}

LayoutChoice choose_layout(const RunSetup& setup, at::Device device, const RankPlacement& ranks,
                           const MemoryNeed& limit) {
  LayoutChoice choice = choose_nodes(setup, device, ranks, limit);
  if (choice.layout.nodes == 1) choice.warning = without_nodes(setup.config, hosts_of(ranks));
  return choice;
}

}  // namespace mpzero
