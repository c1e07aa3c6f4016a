#include "app/memory/memory_plan.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <functional>
#include <limits>
#include <utility>

#include "app/config/zero_options.hpp"
#include "app/flags/training_flags.hpp"

namespace mpzero {
namespace {

using enum model::Recompute;

// A setting of a scenario: alternative values that require less memory, closest to the current value first.
using Aspect = std::vector<std::function<void(MemoryScenario&)>>;
// Bits of aspects(), by index.
constexpr unsigned kStage = 1U << 4U, kParameters = 1U << 6U;

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
  Aspect casts, recompute, release, batch, stage, optimizer, parameters;
  if (now.keeps_casts) casts.emplace_back([](MemoryScenario& s) { s.keeps_casts = false; });
  for (const Recomputation level : {Recomputation::kSelective, Recomputation::kFull, Recomputation::kTiled,
                                    Recomputation::kHostAttention, Recomputation::kHost}) {
    if (level <= now.recompute || (level > Recomputation::kTiled && !now.may_offload_activations)) continue;
    recompute.emplace_back([level](MemoryScenario& s) { s.recompute = level; });
  }
  // Without gradient accumulation, a run may release gradients.
  const bool may_release = now.may_release_gradients || now.forbids_release;
  if (may_release && now.offload_optimizer && !now.release_gradients &&
      (now.forbids_release || now.gradient_accumulation_steps > 1)) {
    release.emplace_back([](MemoryScenario& s) {
      s.micro_batch_size *= s.gradient_accumulation_steps;
      s.gradient_accumulation_steps = 1;
      s.release_gradients = true;
    });
  }
  for (const int64_t size : smaller_divisors(now.micro_batch_size)) {
    batch.emplace_back([size](MemoryScenario& s) {
      s.gradient_accumulation_steps *= s.micro_batch_size / size;
      s.micro_batch_size = size;
    });
  }
  for (int level = std::max(now.zero_stage + 1, 2); level <= 3 && world_size > 1; ++level) {
    stage.emplace_back([level](MemoryScenario& s) { s.zero_stage = level; });
  }
  if (!now.offload_optimizer && now.may_offload_optimizer) {
    optimizer.emplace_back([](MemoryScenario& s) { s.offload_optimizer = true; });
  }
  if (!now.offload_param && now.may_offload_param) {
    parameters.emplace_back([](MemoryScenario& s) {
      s.offload_param = true;
      s.zero_stage = 3;
    });
  }
  return {casts, recompute, release, batch, stage, optimizer, parameters};
}

std::string describe(const MemoryScenario& now, const MemoryScenario& then, int64_t host_bytes) {
  const bool has_file = now.new_file_keys.empty();
  std::vector<std::string> parts;
  if (then.keeps_casts != now.keeps_casts) parts.emplace_back("fp8.cache_weights auto");
  if (then.recompute != now.recompute) {
    Settings settings;
    settings.recompute = then.recompute;
    parts.push_back("--recompute " + flag_named("recompute").show(settings));
  }
  if (then.micro_batch_size != now.micro_batch_size) {
    const char* const dashes = has_file ? "" : "--";
    parts.push_back(fmt::format("{0}train_micro_batch_size_per_gpu {1} with {0}gradient_accumulation_steps {2}", dashes,
                                then.micro_batch_size, then.gradient_accumulation_steps));
  }
  const bool stage = then.zero_stage != now.zero_stage, optimizer = then.offload_optimizer != now.offload_optimizer,
             parameters = then.offload_param != now.offload_param;
  if (!has_file && (stage || optimizer || parameters)) {
    std::vector<std::string> zero = {fmt::format("\"stage\": {}", then.zero_stage)};
    if (then.offload_optimizer) zero.emplace_back(R"("offload_optimizer": {"device": "cpu"})");
    if (then.offload_param) zero.emplace_back(R"("offload_param": {"device": "cpu"})");
    parts.push_back("--deepspeed_config to a file with " + minimal_ds_config(now.new_file_keys, zero));
  } else {
    if (stage) parts.push_back(fmt::format("zero_optimization.stage {}", then.zero_stage));
    if (optimizer) parts.emplace_back("offload_optimizer to cpu");
    if (parameters) parts.emplace_back("offload_param to cpu");
  }
  if (now.requires_release ? then.gradient_accumulation_steps > 1 : now.forbids_release && then.release_gradients) {
    parts.emplace_back("release_gradients auto");
  }
  std::string text = fmt::format("{}", fmt::join(parts, " and "));
  if (host_bytes > 0) text += fmt::format(", with {} more host memory per rank", gibibytes(host_bytes));
  return text;
}

// Returns the bytes that are offloaded to the host while `layer` runs: the activations of an earlier layer, or 0.
int64_t moved_by(const std::vector<model::Recompute>& levels, const ActivationSizes& sizes, size_t layer) {
  if (layer < model::kLayersOnDevice || !model::keeps_on_host(levels[layer])) return 0;
  const size_t moved = layer - model::kLayersOnDevice;
  return sizes.layers[moved][levels[moved]].kept;
}

// Returns the bytes that a layer adds to the activations on the device.
int64_t added_by(const std::vector<model::Recompute>& levels, const ActivationSizes& sizes, size_t layer) {
  return sizes.layers[layer][levels[layer]].kept - moved_by(levels, sizes, layer);
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
  for (size_t i = 0; i < layers.size(); ++i) sum += moved_by(layers, sizes, i);
  return sum;
}

int64_t host_inputs(const LayerLevels& levels, const ActivationSizes& sizes) {
  return host_activations({{kHost, levels[kHost] + levels[kHostAttention]}}, sizes);
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

// Mixes of levels in which each layer keeps at least as much as the layer before it.
class Mixes {
 public:
  explicit Mixes(const ActivationSizes& sizes) : layers_(sizes.layers) {
    for (const model::Recompute level : {kFull, kAttention, kSelective, kNone}) {
      if (sizes.supports(level)) levels_.push_back(level);
    }
    rest_.assign(layers_.size() + 1, std::vector(levels_.size(), sizes.head));
    for (size_t layer = layers_.size(); layer-- > 0;) {
      for (size_t level = levels_.size(); level-- > 0;) {
        const ActivationSizes::Level& own = layers_[layer][levels_[level]];
        rest_[layer][level] = own.kept + std::max(own.workspace, rest_[layer + 1][level]);
        if (level + 1 < levels_.size()) rest_[layer][level] = std::min(rest_[layer][level], rest_[layer][level + 1]);
      }
    }
  }

  int64_t lowest_peak() const { return rest_.front().front(); }

  // Returns the mix within `budget` that has `full` layers at kFull, then the fewest layers at each of the following
  // levels, or std::nullopt if none fits.
  std::optional<LayerLevels> within(int64_t budget, int64_t full) const {
    LayerLevels mix;
    size_t layer = 0;
    int64_t held = 0;
    const auto add = [&](model::Recompute level) {
      const ActivationSizes::Level& own = layers_[layer++][level];
      held += own.kept;
      ++mix[level];
      return held + own.workspace <= budget;
    };
    while (mix[kFull] < full) {
      if (!add(kFull)) return std::nullopt;
    }
    if (held + rest_[layer][1] > budget) return std::nullopt;
    for (size_t level = 1; level + 1 < levels_.size(); ++level) {
      while (held + rest_[layer][level + 1] > budget) add(levels_[level]);
    }
    mix[kNone] = std::ssize(layers_) - static_cast<int64_t>(layer);
    return mix;
  }

 private:
  const std::vector<ActivationSizes::Layer>& layers_;
  std::vector<model::Recompute> levels_;
  // rest_[i][j]: lowest peak of layers i and later, excluding the bytes that earlier layers keep, if each of these
  // layers keeps at least as much as at levels_[j].
  std::vector<std::vector<int64_t>> rest_;
};

// Returns the levels that run tiles: all layers at tiled, and mixes of host and host_attention within `host_budget`.
std::vector<LayerLevels> tiled_levels(const ActivationSizes& sizes, int64_t host_budget) {
  const int64_t count = std::ssize(sizes.layers);
  std::vector<LayerLevels> found;
  if (sizes.supports(kTiled)) found.push_back({{kTiled, count}});
  if (!sizes.supports(kHost)) return found;
  // Checking a mix takes time proportional to the number of layers. The limit keeps --largest_model fast.
  constexpr int64_t kMostMixes = 128;
  const int64_t step = 1 + count / kMostMixes;
  for (int64_t attention = 0; attention < count + step; attention += step) {
    const int64_t layers = std::min(attention, count);
    const LayerLevels levels{{kHostAttention, layers}, {kHost, count - layers}};
    if (host_activations(levels, sizes) > host_budget) break;
    found.push_back(levels);
  }
  return found;
}

// Returns the predicted time that activation checkpointing adds to a micro-batch, in forward passes of a layer, and the
// number of selective layers, which are compared only if the times are equal. Copies overlap with one forward pass; the
// backward pass takes longer. `budget`: device memory for activations and offloaded parameters.
std::pair<double, int64_t> cost_of(const LayerLevels& levels, const ActivationSizes& sizes, int64_t budget) {
  // All other mixes are preferred to tiled. Copies must save about 5% of a step, which takes at least three forward
  // passes, because they also delay transfers and AdamW on the host, and these delays are not predicted.
  constexpr double kTiles = 0.05, kCopies = 0.2;
  const double layers = static_cast<double>(sizes.layers.size()), bare = 1 - sizes.attention_share;
  const auto exposed = [&](int64_t bytes) {
    return std::max(0.0, static_cast<double>(bytes) / layers * sizes.copy_passes - 1);
  };
  const auto copies = [&](model::Recompute level, double recomputed) {
    const int64_t bytes = host_activations({{level, std::ssize(sizes.layers)}}, sizes);
    return kTiles + kCopies + recomputed + exposed(bytes);
  };
  const auto of = [&](model::Recompute level) { return static_cast<double>(levels[level]); };
  double cost = of(kFull) + bare * of(kAttention) + (1 + kTiles) * of(kTiled);
  if (levels[kHost] > 0) cost += of(kHost) * copies(kHost, 1);
  if (levels[kHostAttention] > 0) cost += of(kHostAttention) * copies(kHostAttention, bare);
  if (const int64_t offloaded = sizes.host_parameters; offloaded > 0) {
    const int64_t displaced = std::clamp<int64_t>(offloaded + activation_peak(levels, sizes) - budget, 0, offloaded);
    // Copies that overlap delay other transfers, as above.
    const double copy = static_cast<double>(offloaded) / layers * sizes.copy_passes;
    cost += static_cast<double>(displaced) / static_cast<double>(offloaded) * layers *
            (kCopies * std::min(1.0, copy) + exposed(offloaded));
  }
  return {cost, levels[kSelective]};
}

}  // namespace

std::optional<LayerLevels> cheapest_levels(const ActivationSizes& sizes, int64_t budget, int64_t host_budget) {
  const Mixes mixes(sizes);
  std::optional<LayerLevels> cheapest;
  std::pair<double, int64_t> least;
  const auto compare = [&](const LayerLevels& levels) {
    const std::pair<double, int64_t> cost = cost_of(levels, sizes, budget);
    if (cheapest && cost >= least) return;
    cheapest = levels;
    least = cost;
  };
  for (int64_t full = 0; full <= std::ssize(sizes.layers); ++full) {
    if (cheapest && static_cast<double>(full) > least.first) break;  // each of them costs a layer
    if (const std::optional<LayerLevels> mix = mixes.within(budget, full)) compare(*mix);
  }
  std::vector<LayerLevels> others = tiled_levels(sizes, host_budget);
  // The mixes above fill the budget. Keeping fewer activations may be faster if more offloaded parameters then fit.
  for (const model::Recompute level : {kSelective, kAttention, kFull}) {
    if (sizes.supports(level)) others.push_back({{level, std::ssize(sizes.layers)}});
  }
  for (const LayerLevels& levels : others) {
    if (activation_peak(levels, sizes) <= budget) compare(levels);
  }
  return cheapest;
}

LayerLevels leanest_levels(const ActivationSizes& sizes, Recomputation recompute, int64_t host_budget) {
  static_assert(static_cast<size_t>(Recomputation::kAuto) == model::kRecomputes.size());
  if (recompute != Recomputation::kAuto) {
    return {{static_cast<model::Recompute>(recompute), std::ssize(sizes.layers)}};
  }
  const Mixes mixes(sizes);
  int64_t least = mixes.lowest_peak();
  std::optional<LayerLevels> leanest;
  for (int64_t full = 0; !leanest; ++full) leanest = mixes.within(least, full);
  for (const LayerLevels& levels : tiled_levels(sizes, host_budget)) {
    const int64_t peak = activation_peak(levels, sizes);
    if (peak < least) leanest = levels;
    least = std::min(least, peak);
  }
  return *leanest;
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
      return std::ranges::any_of(all[index], [&](const auto& apply) {
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
    // A change that fits on its own is not combined with others. Offloading parameters sets stage 3.
    const unsigned changed = (subset & kParameters) != 0 ? subset | kStage : subset;
    const bool redundant =
        std::ranges::any_of(found_aspects, [&](unsigned earlier) { return (earlier & changed) == earlier; });
    if (!redundant) search(subset, 0, now);
  }
  return found;
}

std::string describe_changes(const std::vector<MemoryChange>& changes) {
  if (changes.empty())
    return "no change to the settings would make the run fit; use more ranks, more memory per rank, or a smaller model";
  std::vector<std::string> parts;
  for (const MemoryChange& change : changes) {
    parts.push_back(fmt::format("{} (saves {})", change.text, gibibytes(change.saves)));
  }
  return fmt::format("set {}", fmt::join(parts, ", or "));
}

}  // namespace mpzero
