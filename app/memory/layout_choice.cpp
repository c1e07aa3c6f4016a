#include "app/memory/layout_choice.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <vector>

#include "app/memory/memory_estimate.hpp"
#include "base/collectives.hpp"
#include "base/words.hpp"
#include "parallel/zero/unit_parts.hpp"

namespace mpzero {
namespace {

std::string traffic(int64_t bytes) {
  const auto value = static_cast<double>(bytes);
  if (value >= 1e9) return fmt::format("{:.2f} GB", value / 1e9);
  return value >= 1e6 ? fmt::format("{:.1f} MB", value / 1e6) : fmt::format("{:.1f} kB", value / 1e3);
}

// Returns the minimum memory required, without spare states, which a run omits if memory is short. With `limit`,
// gradients are released and --recompute auto offloads activations to the host if necessary to fit.
MemoryNeed need_of(const RunSetup& setup, at::Device device, const parallel::ParallelLayout& layout,
                   const std::optional<MemoryNeed>& limit) {
  const MemoryEstimate estimate(setup.config, setup.model, device, layout, setup.peer_gpus);
  const MemoryScenario now = estimate.scenario();
  const MemoryNeed need = limit ? estimate.need_within(*limit, now, 0) : estimate.need(now, std::nullopt, 0);
  // On the CPU, device memory is host memory.
  return device.is_cpu() ? MemoryNeed{.device = 0, .host = need.device + need.host} : need;
}

// Returns the bytes of `parameters` quantized values, including their scales.
int64_t bytes_of(const parallel::BlockFormat& format, int64_t parameters) {
  return format.code_bytes(parameters) + format.blocks(parameters) * static_cast<int64_t>(sizeof(float));
}

// Returns a warning about compression keys that have no effect with one shard group, or an empty string. `instead`:
// reason for one shard group, or a remedy.
std::string without_nodes(const RunConfig& config, const std::string& instead) {
  std::vector<std::string> keys;
  if (config.zero.quantized_gradient_bits > 0) keys.emplace_back("zero_quantized_gradients");
  if (config.zero.quantized_weights) keys.emplace_back("zero_quantized_weights");
  if (keys.empty()) return "";
  return fmt::format(
      "{}: zero_optimization.{} {} no effect with one shard group, because only traffic between shard groups is "
      "compressed{}{}.",
      config.ds_config_path, fmt::join(keys, " and "), keys.size() > 1 ? "have" : "has", instead.empty() ? "" : "; ",
      instead);
}

struct Candidate {
  parallel::ParallelLayout layout;
  int64_t bytes = 0;  // sent per host
  MemoryNeed need;
  bool fits = true;
  std::optional<PredictedStep> step;
};

int64_t bytes_between(const RunSetup& setup, const parallel::ZeroOptions& options,
                      const parallel::ParallelLayout& layout, int hosts) {
  int64_t parameters = 0, trained = 0;
  const parallel::UnitParts units(model::model_units(setup.model), options.frozen);
  for (const UnitSpec& unit : units.parts()) {
    parameters += unit.numel();
    if (unit.trainable()) trained += unit.numel();
  }
  return internode_bytes(options, layout, hosts, parameters, trained);
}

// Candidates for "auto".
struct Candidates {
  Candidate nodes, one_level;  // one shard group per host, and one level of ZeRO
  MemoryNeed limit;
};

Candidates candidates(const RunSetup& setup, at::Device device, const RankPlacement& ranks, const MemoryNeed& limit,
                      const PredictStep& predict) {
  const auto candidate = [&](const parallel::ParallelLayout& layout, const std::optional<MemoryNeed>& offloads_within) {
    Candidate one{.layout = layout,
                  .bytes = bytes_between(setup, zero_options(setup.config, device), layout, ranks.hosts()),
                  .need = need_of(setup, device, layout, offloads_within),
                  .step = std::nullopt};
    one.fits = one.need.device <= limit.device && one.need.host <= limit.host;
    if (one.fits && predict) one.step = predict(layout);
    return one;
  };
  const int sequence_ranks = setup.layout.sequence_ranks;
  const auto both = [&](const std::optional<MemoryNeed>& offloads_within) {
    return Candidates{
        .nodes =
            candidate({.nodes = ranks.hosts(), .ranks_per_node = *ranks.per_host, .sequence_ranks = sequence_ranks},
                      offloads_within),
        .one_level = candidate({.nodes = 1, .ranks_per_node = ranks.world_size, .sequence_ranks = sequence_ranks},
                               offloads_within),
        .limit = limit};
  };
  const Candidates all = both(limit);
  if (!all.nodes.fits || !all.one_level.fits || (all.nodes.step && all.one_level.step)) return all;
  // Without predictions, prefer a layout that fits without released gradients and offloaded activations.
  const Candidates without = both(std::nullopt);
  return without.nodes.fits || without.one_level.fits ? without : all;
}

// Returns true if the step is shorter by more than the error of the predictions.
bool is_shorter(const Candidate& one, const Candidate& other) {
  constexpr double kUsualError = 0.05;
  if (!one.step || !other.step) return false;
  const double known = std::max(one.step->error, other.step->error);
  return one.step->seconds * (1 + (known > 0 ? known : kUsualError)) < other.step->seconds;
}

bool takes_nodes(const Candidates& all) {
  if (!all.nodes.fits || !all.one_level.fits) return all.nodes.fits;
  if (is_shorter(all.nodes, all.one_level)) return true;
  return !is_shorter(all.one_level, all.nodes) && all.nodes.bytes < all.one_level.bytes;
}

// Returns text such as "300 ms instead of 200 ms (predicted)".
std::string compare_times(const Candidate& one, const Candidate& taken) {
  const auto milliseconds = [](double seconds) {
    return seconds < 0.1 ? fmt::format("{:.3g} ms", 1e3 * seconds) : fmt::format("{:.0f} ms", 1e3 * seconds);
  };
  return fmt::format("{} instead of {} (predicted)", milliseconds(one.step->seconds),
                     milliseconds(taken.step->seconds));
}

// Returns the reason to reject several shard groups (memory or step time), or an empty string if the reason is traffic.
std::string drawback(const Candidates& all) {
  const MemoryNeed& need = all.nodes.need;
  if (!all.nodes.fits) {
    const bool on_host = need.host > all.limit.host;
    const auto [needed, available] =
        on_host ? compared_sizes(need.host, all.limit.host) : compared_sizes(need.device, all.limit.device);
    return fmt::format("shard groups need {} of {} memory per rank (available: {})", needed, on_host ? "host" : "GPU",
                       available);
  }
  if (!is_shorter(all.one_level, all.nodes)) return "";
  return fmt::format("a step would take {}", compare_times(all.nodes, all.one_level));
}

// Returns the log line that compares the layouts.
std::string describe_choice(const Candidates& all, const RunSetup& setup, const std::string& up_to) {
  const std::string compressed = describe_compression(setup.config);
  const std::string in_bits = compressed.empty() ? "" : fmt::format(" ({})", compressed);
  const std::string nodes = traffic(all.nodes.bytes) + in_bits, one_level = up_to + traffic(all.one_level.bytes);
  if (takes_nodes(all)) {
    const bool shorter = is_shorter(all.nodes, all.one_level);
    return fmt::format("Traffic between shard groups: {} per group per step; one level of ZeRO: {}{}", nodes, one_level,
                       shorter ? ", and a step would take " + compare_times(all.one_level, all.nodes) : "");
  }
  const std::string against = drawback(all);
  return fmt::format("Traffic between hosts: {} per host per step; two levels of ZeRO: {}{}{}", one_level,
                     all.nodes.bytes == all.one_level.bytes ? "the same" : nodes, against.empty() ? "" : ", but ",
                     against);
}

// A choice, with the argument `instead` of without_nodes().
struct Chosen {
  LayoutChoice choice;
  std::string instead = {};
};

// Selects a layout for "auto", if hosts can be shard groups.
Chosen choose_open(const Candidates& all, const RunSetup& setup, const std::string& up_to) {
  const std::string against = drawback(all);
  return {{.layout = takes_nodes(all) ? all.nodes.layout : all.one_level.layout,
           .line = describe_choice(all, setup, up_to)},
          fmt::format("two-level ZeRO was rejected: {}",
                      against.empty() ? "shard groups would not reduce traffic between hosts" : against)};
}

Chosen choose_nodes(const RunSetup& setup, at::Device device, const RankPlacement& ranks, const MemoryNeed& limit,
                    const PredictStep& predict) {
  const parallel::ParallelLayout one_level{
      .nodes = 1, .ranks_per_node = ranks.world_size, .sequence_ranks = setup.layout.sequence_ranks};
  const parallel::ParallelLayout wanted = parallel_layout(setup.config, ranks);
  const parallel::ZeroOptions options = zero_options(setup.config, device);
  const int hosts = ranks.hosts();
  const std::string up_to = options.stage == 3 ? "up to " : "";
  const std::string at_one_level =
      fmt::format("{}{} per host per step", up_to, traffic(bytes_between(setup, options, one_level, hosts)));
  const bool open = setup.config.zero.ranks_per_node.value_or(kRanksOfHost) == kRanksOfHost;
  if (!open && wanted.nodes > 1) {
    const std::string compressed = describe_compression(setup.config);
    return {{.layout = wanted,
             .line = fmt::format("Traffic between shard groups: {}{} per group per step",
                                 traffic(bytes_between(setup, options, wanted, hosts)),
                                 compressed.empty() ? "" : fmt::format(" ({})", compressed))}};
  }
  if (hosts == 1) return {{.layout = wanted, .line = ""}};
  if (!open) return {{.layout = wanted, .line = "Traffic between hosts: " + at_one_level}};
  if (!ranks.per_host) {
    return {{.layout = one_level,
             .line = fmt::format("Traffic between hosts: {} (one level of ZeRO, because {})", at_one_level,
                                 describe_unevenness(ranks))},
            "hosts cannot be shard groups: " + describe_unevenness(ranks)};
  }
  // Predictions do not cover NVLink between hosts.
  if (!setup.config.zero.ranks_per_node && ranks.one_nvlink_domain) {
    return {{.layout = one_level, .line = fmt::format("Traffic between hosts: {}, over NVLink", at_one_level)},
            "\"zero_hpz_partition_size\": \"auto\" makes each host a shard group"};
  }
  return choose_open(candidates(setup, device, ranks, limit, predict), setup, up_to);
}

// Returns a warning if shard groups span hosts, or an empty string.
std::string across_hosts(const RunConfig& config, const parallel::ParallelLayout& layout, const RankPlacement& ranks) {
  if (config.zero.ranks_per_node.value_or(kRanksOfHost) == kRanksOfHost) return "";
  if (!has_nodes_across_hosts(layout, ranks)) return "";
  return fmt::format(
      "{}: {} {} creates shard groups that span hosts, so the traffic of every micro-batch crosses the network; unless "
      "NVLink connects the hosts, {}.",
      config.ds_config_path, config.zero.ranks_per_node_key, layout.ranks_per_node,
      ranks.per_host ? fmt::format("use {} (the number of ranks per host) or a divisor of it", *ranks.per_host)
                     : fmt::format("change the placement of ranks: {}", describe_unevenness(ranks)));
}

}  // namespace

int64_t internode_bytes(const parallel::ZeroOptions& options, const parallel::ParallelLayout& layout, int hosts,
                        int64_t parameters, int64_t trained) {
  int64_t gradients = trained * static_cast<int64_t>(c10::elementSize(options.communication_dtype));
  int64_t weights = trained * static_cast<int64_t>(c10::elementSize(options.dtype));
  const int64_t steps = options.gradient_accumulation_steps;
  if (layout.nodes > 1) {
    const parallel::Compression& compression = options.compression;
    if (compression.gradient_bits > 0) gradients = bytes_of(compression.gradient_format(), trained);
    if (compression.weights) weights = bytes_of(parallel::kInt8, trained);
    return (gradients + weights) / layout.nodes * (layout.nodes - 1);
  }
  if (hosts == 1) return 0;
  // Stage 0 all-reduces gradients, and each rank updates all parameters.
  if (options.stage == 0) return 2 * gradients / layout.ranks_per_node * (layout.ranks_per_node - 1);
  const int64_t sums = options.stage >= 2 ? steps : 1;
  // ZeRO-3 gathers for each forward and backward pass, unless units stay gathered.
  const int64_t gathers = options.stage == 3 ? 2 * steps : 1;
  if (options.stage == 3) weights = weights / trained * parameters;
  return (gradients * sums + weights * gathers) / layout.ranks_per_node * (layout.ranks_per_node - 1);
}

LayoutChoice choose_layout(const RunSetup& setup, at::Device device, const RankPlacement& ranks,
                           const MemoryNeed& limit, const PredictStep& predict) {
  Chosen chosen = choose_nodes(setup, device, ranks, limit, predict);
  LayoutChoice& choice = chosen.choice;
  choice.warning = choice.layout.nodes == 1 ? without_nodes(setup.config, chosen.instead)
                                            : across_hosts(setup.config, choice.layout, ranks);
  return choice;
}

LayoutChoice choose_layout_of_rank_0(ProcessGroup& group, const RunSetup& setup, at::Device device,
                                     const RankPlacement& ranks, const MemoryNeed& limit, const PredictStep& predict) {
  LayoutChoice choice;
  // Choose on all ranks, so that an error that occurs on all ranks is not attributed to rank 0.
  run_on_all_ranks(
      group, [&] { choice = choose_layout(setup, device, ranks, limit, group.rank() == 0 ? predict : PredictStep()); });
  choice.layout = broadcast(group, choice.layout);
  return choice;
}

}  // namespace mpzero
