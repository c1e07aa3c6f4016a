#include "app/memory/memory_plan.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <functional>
#include <limits>
#include <utility>

#include "app/flags/training_flags.hpp"

namespace mpzero {
namespace {

// A setting of a scenario and alternative values that require less memory, closest to the current value first.
struct Aspect {
  std::vector<std::function<void(MemoryScenario&)>> values;
};

// Returns the proper divisors in descending order.
std::vector<int64_t> smaller_divisors(int64_t number) {
  std::vector<int64_t> divisors;
  for (int64_t small = 1; small <= number / small; ++small) {
    if (number % small != 0) continue;
    for (const int64_t divisor : {small, number / small}) {
      if (divisor < number) divisors.push_back(divisor);
    }
  }
  std::sort(divisors.begin(), divisors.end(), std::greater<>());
  divisors.erase(std::unique(divisors.begin(), divisors.end()), divisors.end());
  return divisors;
}

std::vector<Aspect> aspects(const MemoryScenario& now, int world_size) {
  Aspect casts, recompute, batch, stage, optimizer, parameters;
  if (now.keeps_casts) {
    casts.values.emplace_back([](MemoryScenario& s) { s.keeps_casts = false; });
  }
  if (now.recompute == Recomputation::kNone) {
    recompute.values.emplace_back([](MemoryScenario& s) { s.recompute = Recomputation::kSelective; });
  }
  if (now.recompute == Recomputation::kNone || now.recompute == Recomputation::kSelective) {
    recompute.values.emplace_back([](MemoryScenario& s) { s.recompute = Recomputation::kFull; });
  }
  const bool may_recompute_more = now.recompute != Recomputation::kHost && now.recompute != Recomputation::kAuto;
  if (may_recompute_more && now.recompute != Recomputation::kTiled) {
    recompute.values.emplace_back([](MemoryScenario& s) { s.recompute = Recomputation::kTiled; });
  }
  if (may_recompute_more && now.may_offload_activations) {
    recompute.values.emplace_back([](MemoryScenario& s) { s.recompute = Recomputation::kHost; });
  }
  for (const int64_t size : smaller_divisors(now.micro_batch_size)) {
    batch.values.emplace_back([size](MemoryScenario& s) {
      s.gradient_accumulation_steps *= s.micro_batch_size / size;
      s.micro_batch_size = size;
    });
  }
  for (int level = std::max(now.zero_stage + 1, 2); level <= 3 && world_size > 1; ++level) {
    stage.values.emplace_back([level](MemoryScenario& s) { s.zero_stage = level; });
  }
  if (!now.offload_optimizer && now.may_offload_optimizer) {
    optimizer.values.emplace_back([](MemoryScenario& s) { s.offload_optimizer = true; });
  }
  if (!now.offload_param && now.may_offload_param) {
    parameters.values.emplace_back([](MemoryScenario& s) {
      s.offload_param = true;
      s.zero_stage = 3;
    });
  }
  return {casts, recompute, batch, stage, optimizer, parameters};
}

std::string describe(const MemoryScenario& now, const MemoryScenario& then, int64_t host_bytes) {
  std::vector<std::string> parts;
  if (then.keeps_casts != now.keeps_casts) parts.emplace_back("fp8.cache_weights auto");
  if (then.recompute != now.recompute) {
    Settings settings;
    settings.recompute = then.recompute;
    parts.push_back("--recompute " + flag_named("recompute").show(settings));
  }
  if (then.micro_batch_size != now.micro_batch_size) {
    parts.push_back(fmt::format("train_micro_batch_size_per_gpu {} with gradient_accumulation_steps {}",
                                then.micro_batch_size, then.gradient_accumulation_steps));
  }
  if (then.zero_stage != now.zero_stage) parts.push_back(fmt::format("zero_optimization.stage {}", then.zero_stage));
  if (then.offload_optimizer != now.offload_optimizer) parts.emplace_back("offload_optimizer to cpu");
  if (then.offload_param != now.offload_param) parts.emplace_back("offload_param to cpu");
  if (now.requires_release && then.gradient_accumulation_steps > 1) parts.emplace_back("release_gradients auto");
  std::string text = fmt::format("{}", fmt::join(parts, " and "));
  if (host_bytes > 0) text += fmt::format(", with {} more host memory per rank", gibibytes(host_bytes));
  return text;
}

// Returns the layer whose input is offloaded before the forward pass of `layer`, or std::nullopt.
std::optional<size_t> moved_before(const std::vector<model::Recompute>& levels, size_t layer) {
  if (layer < model::kInputsOnDevice || levels[layer] != model::Recompute::kHost) return std::nullopt;
  return layer - model::kInputsOnDevice;
}

// Returns the bytes that a layer adds to the activations on the device.
int64_t added_by(const std::vector<model::Recompute>& levels, const ActivationSizes& sizes, size_t layer) {
  int64_t added = sizes.layers[layer][levels[layer]].kept;
  if (const auto moved = moved_before(levels, layer)) added -= sizes.layers[*moved][model::Recompute::kHost].kept;
  return added;
}

}  // namespace

int64_t within_host_margin(int64_t available) {
  return available - std::max(std::min(int64_t{1} << 30, available / 8), available / 32);
}

int64_t memory_margin(int64_t available) { return std::max(int64_t{512} << 20, available / 25); }

std::vector<model::Recompute> by_layer(const LayerLevels& levels) {
  std::vector<model::Recompute> layers;
  for (const model::Recompute level : model::kRecomputes) {
    layers.insert(layers.begin(), static_cast<size_t>(levels[level]), level);
  }
  return layers;
}

std::string describe(const LayerLevels& levels) {
  std::vector<std::string> parts;
  for (const model::Recompute level : model::kRecomputes) {
    if (levels[level] > 0) parts.push_back(fmt::format("{} x {}", name(level), levels[level]));
  }
  return fmt::format("{}", fmt::join(parts, ", "));
}

std::string gibibytes(int64_t bytes) { return fmt::format("{:.2f} GiB", static_cast<double>(bytes) / (1 << 30)); }

std::pair<std::string, std::string> compared_sizes(int64_t needed, int64_t available) {
  std::pair sizes(gibibytes(needed), gibibytes(available));
  if (sizes.first != sizes.second) return sizes;
  const auto mebibytes = [](int64_t bytes) {
    return fmt::format("{:.2f} MiB", static_cast<double>(bytes) / (1 << 20));
  };
  return {mebibytes(needed), mebibytes(available)};
}

int64_t kept_activations(const LayerLevels& levels, const ActivationSizes& sizes) {
  const std::vector<model::Recompute> layers = by_layer(levels);
  int64_t sum = 0;
  for (size_t i = 0; i < layers.size(); ++i) sum += added_by(layers, sizes, i);
  return sum;
}

int64_t host_activations(const LayerLevels& levels, const ActivationSizes& sizes) {
  const std::vector<model::Recompute> layers = by_layer(levels);
  int64_t sum = 0;
  for (size_t i = 0; i < layers.size(); ++i) {
    if (const auto moved = moved_before(layers, i)) sum += sizes.layers[*moved][model::Recompute::kHost].kept;
  }
  return sum;
}

int64_t activation_peak(const LayerLevels& levels, const ActivationSizes& sizes) {
  const std::vector<model::Recompute> layers = by_layer(levels);
  int64_t held = 0, peak = 0;
  for (size_t i = 0; i < layers.size(); ++i) {
    held += added_by(layers, sizes, i);
    // While a layer runs, forward or backward, this layer and all earlier layers keep their activations.
    peak = std::max(peak, held + sizes.layers[i][layers[i]].workspace);
  }
  return std::max(peak, held + sizes.head);
}

namespace {

struct Peak {
  int64_t held = 0, peak = 0;
  void add(const ActivationSizes::Level& level) {
    held += level.kept;
    peak = std::max(peak, held + level.workspace);
  }
};

// Calls visit(levels, activation_peak(levels)) for all mixes of full, attention, selective and none, then for all
// layers at tiled, and at host within `host_budget`. Mixes are ordered by their number of full layers, then of
// attention layers, then of selective layers; mixes with more selective layers are skipped once `visit` returns true.
// Needs O(layers^3) calls, or O(layers^2) if most are skipped.
template <typename Visit>
void visit_mixes(const ActivationSizes& sizes, int64_t host_budget, const Visit& visit) {
  using enum model::Recompute;
  const std::vector<ActivationSizes::Layer>& layers = sizes.layers;
  const size_t count = layers.size();
  // Peak from each layer onward, excluding the kept bytes of earlier layers, with the level none from this layer
  // onward.
  std::vector<int64_t> rest(count + 1, sizes.head);
  for (size_t i = count; i-- > 0;) {
    rest[i] = layers[i][kNone].kept + std::max(layers[i][kNone].workspace, rest[i + 1]);
  }
  Peak of_full;
  for (size_t full = 0; full <= count; ++full) {
    if (full > 0) of_full.add(layers[full - 1][kFull]);
    Peak of_attention = of_full;
    for (size_t attention = 0; full + attention <= count; ++attention) {
      const size_t whole = full + attention;
      if (attention > 0) of_attention.add(layers[whole - 1][kAttention]);
      Peak prefix = of_attention;
      for (size_t selective = 0; whole + selective <= count; ++selective) {
        const size_t leaner = whole + selective;
        if (selective > 0) prefix.add(layers[leaner - 1][kSelective]);
        const LayerLevels levels{
            {kFull, full}, {kAttention, attention}, {kSelective, selective}, {kNone, count - leaner}};
        if (visit(levels, std::max(prefix.peak, prefix.held + rest[leaner]))) break;
      }
    }
  }
  for (const LayerLevels& levels : {LayerLevels{{kTiled, count}}, LayerLevels{{kHost, count}}}) {
    if (host_activations(levels, sizes) <= host_budget) visit(levels, activation_peak(levels, sizes));
  }
}

// Returns the recomputed part of all layers' forward FLOPs, in layers, and the number of selective layers. Tiled and
// host layers cost more than all mixes.
std::pair<double, int64_t> cost_of(const LayerLevels& levels, double attention_share) {
  using enum model::Recompute;
  const auto of = [&](model::Recompute level) { return static_cast<double>(levels[level]); };
  return {of(kFull) + (1 - attention_share) * of(kAttention) + 2 * of(kTiled) + 3 * of(kHost), levels[kSelective]};
}

}  // namespace

std::optional<LayerLevels> cheapest_levels(const ActivationSizes& sizes, int64_t budget, int64_t host_budget) {
  std::optional<LayerLevels> cheapest;
  std::pair<double, int64_t> least(std::numeric_limits<double>::max(), 0);
  visit_mixes(sizes, host_budget, [&](const LayerLevels& levels, int64_t peak) {
    const std::pair<double, int64_t> cost = cost_of(levels, sizes.attention_share);
    if (cost >= least) return true;
    if (peak > budget) return false;
    cheapest = levels;
    least = cost;
    return true;
  });
  return cheapest;
}

LayerLevels leanest_levels(const ActivationSizes& sizes, Recomputation recompute, int64_t host_budget) {
  static_assert(static_cast<size_t>(Recomputation::kAuto) == model::kRecomputes.size());
  if (recompute != Recomputation::kAuto) {
    return {{static_cast<model::Recompute>(recompute), std::ssize(sizes.layers)}};
  }
  LayerLevels leanest;
  int64_t least = std::numeric_limits<int64_t>::max();
  visit_mixes(sizes, host_budget, [&](const LayerLevels& levels, int64_t peak) {
    if (peak < least) leanest = levels;
    least = std::min(least, peak);
    return false;
  });
  return leanest;
}

std::vector<MemoryChange> changes_that_fit(const MemoryScenario& now, int world_size, const MemoryNeed& limit,
                                           const std::function<MemoryNeed(const MemoryScenario&)>& need, size_t most) {
  const std::vector<Aspect> all = aspects(now, world_size);
  const MemoryNeed today = need(now);
  std::vector<unsigned> found_aspects;
  std::vector<MemoryChange> found;
  std::vector<unsigned> subsets;
  for (unsigned subset = 1; subset < 1U << all.size(); ++subset) subsets.push_back(subset);
  std::stable_sort(subsets.begin(), subsets.end(),
                   [](unsigned a, unsigned b) { return std::popcount(a) < std::popcount(b); });

  // Tries the values of the aspects in `subset`, starting at `index`. Returns true once a combination fits.
  const std::function<bool(unsigned, size_t, const MemoryScenario&)> search = [&](unsigned subset, size_t index,
                                                                                  const MemoryScenario& scenario) {
    if (index < all.size()) {
      if ((subset >> index & 1U) == 0) return search(subset, index + 1, scenario);
      return std::any_of(all[index].values.begin(), all[index].values.end(), [&](const auto& apply) {
        MemoryScenario changed = scenario;
        apply(changed);
        return search(subset, index + 1, changed);
      });
    }
    const MemoryNeed then = need(scenario);
    if (then.device > limit.device || then.host > std::max(limit.host, today.host)) return false;
    found_aspects.push_back(subset);
    found.push_back({.scenario = scenario,
                     .text = describe(now, scenario, then.host - today.host),
                     .saves = today.device - then.device});
    return true;
  };
  for (const unsigned subset : subsets) {
    if (found.size() >= most) break;
    // A change that fits on its own is not combined with others.
    const bool redundant = std::any_of(found_aspects.begin(), found_aspects.end(),
                                       [&](unsigned earlier) { return (earlier & subset) == earlier; });
    if (!redundant) search(subset, 0, now);
  }
  return found;
}

std::string describe_changes(const std::vector<MemoryChange>& changes) {
  if (changes.empty())
    return "no change of settings would make the run fit; use more or larger GPUs, or a smaller model";
  std::vector<std::string> parts;
  for (const MemoryChange& change : changes) {
    parts.push_back(fmt::format("{} (saves {})", change.text, gibibytes(change.saves)));
  }
  return fmt::format("set {}", fmt::join(parts, ", or "));
}

}  // namespace mpzero
