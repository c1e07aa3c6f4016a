#include <algorithm>
#include <nlohmann/json.hpp>
#include <random>
#include <tuple>
#include <utility>
#include <vector>

#include "app/memory/memory_plan.hpp"
#include "tests/catch.hpp"

namespace mpzero {
namespace {

using Catch::Contains;
using enum model::Recompute;

constexpr int64_t kGiB = int64_t{1} << 30;
// Sizes like those of a wide layer: 17 units if all is kept, 11 without what is cheap to recompute, 1 for the input.
constexpr ActivationSizes::Level kAsTiled{.kept = kGiB, .workspace = 30 * kGiB};
constexpr ActivationSizes::Layer kLayer{{{{.kept = 17 * kGiB, .workspace = 20 * kGiB},  // none
                                          {.kept = 11 * kGiB, .workspace = 21 * kGiB},  // selective
                                          {.kept = 11 * kGiB, .workspace = 36 * kGiB},  // attention: no use
                                          {.kept = kGiB, .workspace = 36 * kGiB},       // full
                                          kAsTiled,
                                          {.kept = 11 * kGiB, .workspace = 30 * kGiB},  // host_attention
                                          kAsTiled}}};                                  // tiled before it, host
const ActivationSizes kSizes{.layers = std::vector(4, kLayer), .head = 0};

// Walks through a micro-batch and records the peak: the oracle of activation_peak.
int64_t simulated_peak(const LayerLevels& levels, const ActivationSizes& sizes) {
  std::vector<ActivationSizes::Level> layers;
  for (const model::Recompute level : {kTiled, kFull, kAttention, kSelective, kNone}) {
    for (int64_t i = 0; i < levels[level]; ++i) layers.push_back(sizes.layers[layers.size()][level]);
  }
  if (const int64_t count = levels[kHost] + levels[kHostAttention]; count > 0) {
    // The activations of two layers are on the device at a time.
    int64_t peak = 0, before = 0;
    for (int64_t i = 0; i < count; ++i) {
      const ActivationSizes::Layer& layer = sizes.layers[static_cast<size_t>(i)];
      const int64_t kept =
          layer[kTiled].kept + (i < levels[kHost] ? 0 : layer[kHostAttention].kept - layer[kTiled].kept);
      const int64_t workspace = layer[i < levels[kHost] ? kHost : kHostAttention].workspace;
      peak = std::max(peak, before + kept + (i + 1 == count ? std::max(workspace, sizes.head) : workspace));
      before = kept;
    }
    return peak;
  }
  int64_t held = 0;
  for (const ActivationSizes::Level& layer : layers) held += layer.kept;
  int64_t peak = held + sizes.head;
  for (size_t i = layers.size(); i-- > 0; held -= layers[i].kept) peak = std::max(peak, held + layers[i].workspace);
  return peak;
}

template <typename Check>
void for_all_mixes(int64_t layers, const Check& check) {
  for (int64_t full = 0; full <= layers; ++full) {
    for (int64_t attention = 0; full + attention <= layers; ++attention) {
      const int64_t rest = layers - full - attention;
      for (int64_t selective = 0; selective <= rest; ++selective) {
        check(LayerLevels{{kFull, full}, {kAttention, attention}, {kSelective, selective}, {kNone, rest - selective}});
      }
    }
  }
  check(LayerLevels{{kTiled, layers}});
  for (int64_t host = layers; host >= 0; --host) check(LayerLevels{{kHost, host}, {kHostAttention, layers - host}});
}

TEST_CASE("the peak of activations matches a simulated walk through the micro-batch") {
  for (const int64_t workspace : {int64_t{0}, kGiB, 20 * kGiB}) {
    ActivationSizes sizes = kSizes;
    sizes.head = 2 * workspace;
    // Unlike layers, as those of an encoder and a decoder.
    for (size_t i = 0; i < sizes.layers.size(); ++i) {
      sizes.layers[i][kNone] = {.kept = (i < 2 ? 2 : 17) * kGiB, .workspace = workspace};
      sizes.layers[i][kSelective].workspace = (i < 2 ? 1 : 3) * workspace + kGiB;
    }
    for_all_mixes(4, [&](const LayerLevels& levels) {
      CAPTURE(workspace, levels[kFull], levels[kAttention], levels[kSelective]);
      CHECK(activation_peak(levels, sizes) == simulated_peak(levels, sizes));
    });
  }
}

TEST_CASE("ranks leave host memory for the system") {
  CHECK(within_host_margin(kGiB) == kGiB / 8 * 7);
  CHECK(within_host_margin(8 * kGiB) == 7 * kGiB);
  CHECK(within_host_margin(32 * kGiB) == 31 * kGiB);
  // A run of Llama-3-8B that planned all but 1 GiB of such a host was killed for lack of memory.
  CHECK(within_host_margin(128 * kGiB) == 124 * kGiB);
}

TEST_CASE("offloaded layer inputs use host memory instead of device memory") {
  ActivationSizes sizes = kSizes;
  for (size_t i = 0; i < sizes.layers.size(); ++i) {
    sizes.layers[i][kTiled].kept = sizes.layers[i][kHost].kept = static_cast<int64_t>(i + 1) * kGiB;
  }
  CHECK(kept_activations({{kTiled, 4}}, sizes) == 10 * kGiB);
  CHECK(host_activations({{kTiled, 4}}, sizes) == 0);
  CHECK(kept_activations({{kHost, 4}}, sizes) == (3 + 4) * kGiB);
  CHECK(host_activations({{kHost, 4}}, sizes) == (1 + 2) * kGiB);
  CHECK(by_layer({{kHost, 4}}) == std::vector(4, model::Recompute::kHost));
  CHECK(describe(LayerLevels{{kHost, 4}}) == "host x 4");
  for (ActivationSizes::Layer& layer : sizes.layers) layer[kHostAttention].kept = layer[kHost].kept + 10 * kGiB;
  CHECK(kept_activations({{kHostAttention, 4}}, sizes) == (13 + 14) * kGiB);
  CHECK(host_activations({{kHostAttention, 4}}, sizes) == (11 + 12) * kGiB);
  CHECK(host_inputs({{kHostAttention, 4}}, sizes) == (1 + 2) * kGiB);
  // The first layers' attention is recomputed; two of the last three attention outputs stay.
  const LayerLevels mixed{{kHost, 1}, {kHostAttention, 3}};
  CHECK(by_layer(mixed) == std::vector{kHost, kHostAttention, kHostAttention, kHostAttention});
  CHECK(kept_activations(mixed, sizes) == (13 + 14) * kGiB);
  CHECK(host_activations(mixed, sizes) == (1 + 12) * kGiB);
  CHECK(host_inputs(mixed, sizes) == (1 + 2) * kGiB);
}

TEST_CASE("the least recomputation that fits is chosen") {
  const int64_t all = 4 * 17 * kGiB + 20 * kGiB;
  CHECK(cheapest_levels(kSizes, all) == LayerLevels{{kNone, 4}});
  CHECK(cheapest_levels(kSizes, all - 1) == LayerLevels{{kSelective, 1}, {kNone, 3}});
  CHECK(cheapest_levels(kSizes, (4 * 11 + 21) * kGiB) == LayerLevels{{kSelective, 4}});
  // A layer at full frees more memory than is missing, so that others can keep everything.
  CHECK(cheapest_levels(kSizes, (4 * 11 + 21) * kGiB - 1) == LayerLevels{{kFull, 1}, {kSelective, 2}, {kNone, 1}});
  // The last layer keeps more: at full it would recompute the same immediately.
  CHECK(cheapest_levels(kSizes, 40 * kGiB) == LayerLevels{{kFull, 3}, {kNone, 1}});
  CHECK(cheapest_levels(kSizes, 39 * kGiB) == LayerLevels{{kFull, 3}, {kSelective, 1}});
  // Tiles are for runs that do not fit otherwise.
  CHECK(cheapest_levels(kSizes, 39 * kGiB - 1) == LayerLevels{{kTiled, 4}});
  CHECK(cheapest_levels(kSizes, 34 * kGiB) == LayerLevels{{kTiled, 4}});
  CHECK_FALSE(cheapest_levels(kSizes, 34 * kGiB - 1).has_value());
  // Of four inputs two are on the host, if it has the memory.
  CHECK_FALSE(cheapest_levels(kSizes, 34 * kGiB - 1, 2 * kGiB - 1).has_value());
  CHECK(cheapest_levels(kSizes, 34 * kGiB - 1, 2 * kGiB) == LayerLevels{{kHost, 4}});
  CHECK(cheapest_levels(kSizes, 32 * kGiB, 2 * kGiB) == LayerLevels{{kHost, 4}});
  CHECK_FALSE(cheapest_levels(kSizes, 32 * kGiB - 1, 500 * kGiB).has_value());
  CHECK(cheapest_levels(kSizes, 34 * kGiB, 500 * kGiB) == LayerLevels{{kTiled, 4}});
}

// Sizes of long sequences, whose attention is almost half of the work.
ActivationSizes long_sizes() {
  ActivationSizes sizes = kSizes;
  sizes.attention_share = 0.45;
  for (ActivationSizes::Layer& layer : sizes.layers) {
    layer[kAttention] = {.kept = 2 * kGiB, .workspace = 36 * kGiB};
    layer[kHostAttention] = {.kept = 2 * kGiB, .workspace = 30 * kGiB};
  }
  return sizes;
}

TEST_CASE("attention is not recomputed if its output fits") {
  CHECK(cheapest_levels(long_sizes(), 44 * kGiB) == LayerLevels{{kAttention, 3}, {kNone, 1}});
  CHECK(cheapest_levels(long_sizes(), 40 * kGiB) == LayerLevels{{kFull, 2}, {kAttention, 1}, {kSelective, 1}});
}

TEST_CASE("attention outputs are offloaded if this saves time") {
  ActivationSizes sizes = long_sizes();
  constexpr int64_t kMuch = 500 * kGiB;
  const auto levels = [&](int64_t budget, int64_t host_budget) { return cheapest_levels(sizes, budget, host_budget); };
  // A layer at full adds 1 forward pass, at attention 0.55, at host_attention 0.8, at tiled 1.05, at host 1.25.
  CHECK(levels(44 * kGiB, kMuch) == LayerLevels{{kAttention, 3}, {kNone, 1}});
  CHECK(levels(39 * kGiB, kMuch) == LayerLevels{{kFull, 3}, {kSelective, 1}});
  CHECK(levels(38 * kGiB, kMuch) == LayerLevels{{kHostAttention, 4}});
  CHECK(levels(34 * kGiB, kMuch) == LayerLevels{{kHostAttention, 4}});
  // As many as the host has memory for: those of two of four layers stay on the device.
  CHECK(levels(34 * kGiB, 4 * kGiB) == LayerLevels{{kHostAttention, 4}});
  CHECK(levels(34 * kGiB, 4 * kGiB - 1) == LayerLevels{{kHost, 1}, {kHostAttention, 3}});
  CHECK(levels(34 * kGiB, 2 * kGiB) == LayerLevels{{kHost, 2}, {kHostAttention, 2}});
  CHECK(levels(34 * kGiB, 2 * kGiB - 1) == LayerLevels{{kTiled, 4}});
  CHECK_FALSE(levels(34 * kGiB - 1, 2 * kGiB - 1).has_value());
  CHECK(levels(33 * kGiB, kMuch) == LayerLevels{{kHost, 3}, {kHostAttention, 1}});
  CHECK(levels(32 * kGiB, kMuch) == LayerLevels{{kHost, 4}});
  // Copies that take longer than the layers cost more than they save. The mean of a layer is 1 GiB.
  sizes.copy_passes = 1.0 / kGiB;
  CHECK(levels(34 * kGiB, kMuch) == LayerLevels{{kHostAttention, 4}});
  sizes.copy_passes = 1.3 / kGiB;
  CHECK(levels(34 * kGiB, kMuch) == LayerLevels{{kTiled, 4}});
  sizes.copy_passes = 0;
  // Short sequences, whose attention is little work.
  sizes.attention_share = 0.1;
  CHECK(levels(34 * kGiB, kMuch) == LayerLevels{{kTiled, 4}});
  CHECK(levels(33 * kGiB, kMuch) == LayerLevels{{kHost, 3}, {kHostAttention, 1}});
}

TEST_CASE("models of any depth can offload all attention outputs") {
  for (const size_t layers : {127U, 128U, 129U, 257U, 300U}) {
    ActivationSizes sizes = long_sizes();
    sizes.layers.resize(layers, sizes.layers.front());
    CHECK(cheapest_levels(sizes, 34 * kGiB, 5000 * kGiB) == LayerLevels{{kHostAttention, std::ssize(sizes.layers)}});
  }
}

TEST_CASE("activations displace offloaded parameters only if this saves time") {
  ActivationSizes sizes = kSizes;
  sizes.host_parameters = 100 * kGiB;
  const auto levels = [&](int64_t budget) { return cheapest_levels(sizes, budget); };
  // The copy of a layer's 25 GiB takes as long as its forward pass, then six times as long.
  sizes.copy_passes = 1.0 / (25 * kGiB);
  // Selective needs 65 GiB instead of 88, and a fifth of the copies that overlap counts.
  CHECK(levels(140 * kGiB) == LayerLevels{{kSelective, 4}});
  CHECK(levels(188 * kGiB) == LayerLevels{{kNone, 4}});
  sizes.copy_passes = 6.0 / (25 * kGiB);
  // At none, the peak is 88 GiB, and 48% of the parameters are copied: 9.6 forward passes. The mix needs 40 GiB.
  CHECK(levels(140 * kGiB) == LayerLevels{{kFull, 3}, {kNone, 1}});
  CHECK(levels(188 * kGiB) == LayerLevels{{kNone, 4}});
}

// Oracle: the time that levels add, in forward passes of a layer, then the number of selective layers.
std::pair<double, int64_t> cost_of(const LayerLevels& levels, const ActivationSizes& sizes, int64_t budget) {
  const auto layers = static_cast<double>(sizes.layers.size());
  const auto of = [&](model::Recompute level) { return static_cast<double>(levels[level]); };
  const auto exposed = [&](int64_t bytes) {
    return std::max(0.0, static_cast<double>(bytes) * sizes.copy_passes / layers - 1);
  };
  const auto copies = [&](model::Recompute level) {
    return exposed(host_activations({{level, std::ssize(sizes.layers)}}, sizes));
  };
  const double bare = 1 - sizes.attention_share;
  double cost = of(kFull) + bare * of(kAttention) + 1.05 * of(kTiled) + (1.25 + copies(kHost)) * of(kHost) +
                (0.25 + bare + copies(kHostAttention)) * of(kHostAttention);
  if (sizes.host_parameters > 0) {
    const int64_t left = std::max<int64_t>(0, budget - activation_peak(levels, sizes));
    const double copied = 1 - std::min(1.0, static_cast<double>(left) / static_cast<double>(sizes.host_parameters));
    const double copy = static_cast<double>(sizes.host_parameters) * sizes.copy_passes / layers;
    cost += layers * copied * (0.2 * std::min(1.0, copy) + exposed(sizes.host_parameters));
  }
  return {cost, levels[kSelective]};
}

TEST_CASE("the chosen levels match an exhaustive search") {
  std::mt19937 random(39);
  const auto draw = [&](int64_t most) { return std::uniform_int_distribution<int64_t>(0, most)(random); };
  for (int round = 0; round < 400; ++round) {
    ActivationSizes sizes{.layers = std::vector<ActivationSizes::Layer>(static_cast<size_t>(1 + draw(6))),
                          .head = draw(30),
                          .attention_share = static_cast<double>(draw(3)) / 4};
    if (draw(1) == 0) sizes.levels = {kNone, kSelective, kFull};
    if (draw(1) == 0) sizes.host_parameters = draw(80);
    sizes.copy_passes = static_cast<double>(draw(8)) / 8;
    for (ActivationSizes::Layer& layer : sizes.layers) {
      for (ActivationSizes::Level& level : layer.values) level = {.kept = draw(8), .workspace = draw(20)};
      layer[kHostAttention].kept += layer[kHost].kept;
    }
    const int64_t budget = draw(60), host_budget = draw(20);
    std::optional<LayerLevels> cheapest, leanest;
    std::pair<double, int64_t> least_cost;
    int64_t least_peak = 0;
    for_all_mixes(std::ssize(sizes.layers), [&](const LayerLevels& mix) {
      for (const model::Recompute level : model::kRecomputes) {
        if (mix[level] > 0 && std::ranges::find(sizes.levels, level) == sizes.levels.end()) return;
      }
      const bool offloads = mix[kHost] + mix[kHostAttention] > 0;
      if (offloads && host_activations(mix, sizes) > host_budget) return;
      const int64_t peak = activation_peak(mix, sizes);
      if (!leanest || peak < least_peak) {
        leanest = mix;
        least_peak = peak;
      }
      // The search covers only mixes that leave no memory to parameters, and single levels.
      const bool single = std::ranges::count(mix.values, 0) + 1 == std::ssize(mix.values);
      if (peak > budget || (sizes.host_parameters > 0 && !single)) return;
      const std::pair cost = cost_of(mix, sizes, budget);
      if (cheapest && cost >= least_cost) return;
      cheapest = mix;
      least_cost = cost;
    });
    CAPTURE(round, budget, host_budget);
    const std::optional<LayerLevels> chosen = cheapest_levels(sizes, budget, host_budget);
    if (sizes.host_parameters == 0) {
      CHECK(chosen == cheapest);
    } else if (cheapest) {
      REQUIRE(chosen);
      CHECK(activation_peak(*chosen, sizes) <= budget);
      CHECK(cost_of(*chosen, sizes, budget).first <= least_cost.first + 1e-9);
    }
    CHECK(leanest_levels(sizes, Recomputation::kAuto, host_budget) == leanest);
  }
}

TEST_CASE("--recompute applies to all layers, and auto reaches the minimum of all combinations") {
  CHECK(leanest_levels(kSizes, Recomputation::kNone) == LayerLevels{{kNone, 4}});
  CHECK(leanest_levels(kSizes, Recomputation::kSelective) == LayerLevels{{kSelective, 4}});
  CHECK(leanest_levels(kSizes, Recomputation::kFull) == LayerLevels{{kFull, 4}});
  CHECK(leanest_levels(kSizes, Recomputation::kTiled) == LayerLevels{{kTiled, 4}});
  CHECK(leanest_levels(kSizes, Recomputation::kHost) == LayerLevels{{kHost, 4}});
  CHECK(leanest_levels(kSizes, Recomputation::kAuto, 2 * kGiB - 1) == LayerLevels{{kTiled, 4}});
  CHECK(leanest_levels(kSizes, Recomputation::kAuto, 2 * kGiB) == LayerLevels{{kHost, 4}});
  const LayerLevels leanest = leanest_levels(kSizes, Recomputation::kAuto);
  CHECK(leanest == LayerLevels{{kTiled, 4}});
  ActivationSizes same = kSizes;
  for (ActivationSizes::Layer& layer : same.layers) layer[kTiled] = layer[kFull];  // as where no tile suits the run
  CHECK(leanest_levels(same, Recomputation::kAuto) == LayerLevels{{kFull, 3}, {kSelective, 1}});
  for_all_mixes(4, [&](const LayerLevels& other) {
    if (other[kHost] == 0) CHECK(simulated_peak(leanest, kSizes) <= simulated_peak(other, kSizes));
  });
  CHECK(cheapest_levels(kSizes, simulated_peak(leanest, kSizes)).has_value());
  CHECK_FALSE(cheapest_levels(kSizes, simulated_peak(leanest, kSizes) - 1).has_value());
}

// A run in which changes save round numbers, in GiB: activations 8 per sequence (6, 3 and 2 when recomputed, 1 by
// tiles, of which a half may be on the host, and attention outputs of a quarter), parameters 16, sharded over two ranks
// from stage 3 on, states 48.
MemoryNeed need(const MemoryScenario& s) {
  const bool attention = s.recompute == Recomputation::kHostAttention;
  const bool on_host = attention || s.recompute == Recomputation::kHost;
  const int64_t of_sequence = s.recompute == Recomputation::kNone        ? 8 * kGiB
                              : s.recompute == Recomputation::kSelective ? 6 * kGiB
                              : s.recompute == Recomputation::kAttention ? 3 * kGiB
                              : s.recompute == Recomputation::kTiled     ? kGiB
                              : attention                                ? kGiB / 4 * 3
                              : on_host                                  ? kGiB / 2
                                                                         : 2 * kGiB;
  const int64_t parameters = s.offload_param ? 1 : s.zero_stage == 3 ? 8 : 16;
  const int64_t states = s.offload_optimizer ? 0 : 48;
  return {.device = of_sequence * s.micro_batch_size + (parameters + states) * kGiB,
          .host = (48 - states + (s.offload_param ? 8 : 0)) * kGiB + (attention ? kGiB / 4 * 3
                                                                      : on_host ? kGiB / 2
                                                                                : 0) *
                                                                         s.micro_batch_size};
}

constexpr MemoryScenario kRun{
    .recompute = Recomputation::kNone, .micro_batch_size = 4, .gradient_accumulation_steps = 3, .zero_stage = 2};
constexpr int64_t kHostBytes = 500 * kGiB;

std::vector<MemoryChange> changes(int64_t device_gib, const MemoryScenario& now = kRun, int64_t host = kHostBytes,
                                  int world_size = 2, size_t most = 2) {
  const std::vector<MemoryChange> found =
      changes_that_fit(now, world_size, {.device = device_gib * kGiB, .host = host}, need, most);
  for (const MemoryChange& change : found) {
    CHECK(change.scenario.micro_batch_size * change.scenario.gradient_accumulation_steps ==
          now.micro_batch_size * now.gradient_accumulation_steps);
  }
  return found;
}

TEST_CASE("the two suggested changes are the least intrusive that fit") {
  REQUIRE(need(kRun).device == 96 * kGiB);
  const std::vector<MemoryChange> little = changes(95);
  REQUIRE(little.size() == 2);
  CHECK(little[0].text == "--recompute selective");
  CHECK(little[0].saves == 8 * kGiB);
  CHECK(little[1].text == "train_micro_batch_size_per_gpu 2 with gradient_accumulation_steps 6");
  CHECK(little[1].saves == 16 * kGiB);

  const std::vector<MemoryChange> more = changes(74);
  REQUIRE(more.size() == 2);
  CHECK(more[0].text == "--recompute full");
  CHECK(more[1].text == "train_micro_batch_size_per_gpu 1 with gradient_accumulation_steps 12");

  CHECK(changes(70).front().text == "--recompute tiled");
  CHECK(changes(67).front().text == "--recompute host_attention, with 3.00 GiB more host memory per rank");
  CHECK(changes(66).front().text == "--recompute host, with 2.00 GiB more host memory per rank");
  CHECK_THAT(changes(67, kRun, 0).front().text, !Contains("--recompute host"));
  MemoryScenario on_device = kRun;
  on_device.may_offload_activations = false;
  for (const MemoryChange& change : changes(67, on_device, kHostBytes, 2, 20)) {
    CHECK_THAT(change.text, !Contains("--recompute host"));
  }

  const std::vector<MemoryChange> all = changes(88, kRun, kHostBytes, 2, 10);
  REQUIRE(all.size() == 4);
  CHECK(all[2].text == "zero_optimization.stage 3");
  CHECK(all[3].text == "offload_optimizer to cpu, with 48.00 GiB more host memory per rank");
  MemoryScenario without_file = kRun;
  without_file.new_file_keys = R"("bf16": {"enabled": true})";
  const std::string stage_3 = changes(88, without_file, kHostBytes, 2, 10)[2].text;
  const auto file = nlohmann::json::parse(stage_3.substr(stage_3.find('{')));
  CHECK(file["zero_optimization"] == nlohmann::json({{"stage", 3}}));
  CHECK_THAT(stage_3, Contains("--deepspeed_config"));
  CHECK_THAT(changes(95, without_file)[1].text, Contains("--gradient_accumulation_steps 6"));
  // Where stage 3 alone does not fit.
  CHECK(changes(81, kRun, kHostBytes, 2, 10).back().text ==
        "zero_optimization.stage 3 and offload_param to cpu, with 8.00 GiB more host memory per rank");
  MemoryScenario attention = kRun;
  attention.recompute = Recomputation::kAttention;
  CHECK(changes(74, attention).front().text == "--recompute full");
  CHECK(describe_changes(little) ==
        "set --recompute selective (saves 8.00 GiB), or train_micro_batch_size_per_gpu 2 with "
        "gradient_accumulation_steps 6 (saves 16.00 GiB)");
}

TEST_CASE("changes that fit only together are suggested together") {
  const std::vector<MemoryChange> pairs = changes(20);
  REQUIRE(pairs.size() == 2);
  for (const MemoryChange& change : pairs) {
    CHECK(need(change.scenario).device <= 20 * kGiB);
    CHECK_THAT(change.text, Contains(" and "));
    CHECK(change.saves == need(kRun).device - need(change.scenario).device);
  }
  CHECK(changes(1).empty());
  // Also the advice for CPU runs.
  CHECK_THAT(describe_changes({}), Contains("smaller model") && !Contains("GPU"));
}

TEST_CASE("an impossible change is not suggested") {
  for (const MemoryChange& change : changes(60, kRun, kHostBytes, 1, 10)) {
    CHECK((change.scenario.zero_stage == 2 || change.scenario.offload_param));
  }
  for (const MemoryChange& change : changes(60, kRun, /*host=*/4 * kGiB, 2, 10)) {
    CHECK_FALSE(change.scenario.offload_optimizer);
  }
  MemoryScenario on_gpu = kRun;
  on_gpu.may_offload_optimizer = on_gpu.may_offload_param = false;
  REQUIRE(!changes(60, on_gpu, kHostBytes, 2, 10).empty());
  for (const MemoryChange& change : changes(60, on_gpu, kHostBytes, 2, 10)) {
    CHECK_FALSE((change.scenario.offload_optimizer || change.scenario.offload_param));
  }
  MemoryScenario automatic = kRun;
  automatic.recompute = Recomputation::kAuto;
  automatic.micro_batch_size = 1;
  for (const MemoryChange& change : changes(60, automatic, kHostBytes, 2, 10)) {
    CHECK(change.scenario.recompute == Recomputation::kAuto);
    CHECK(change.scenario.micro_batch_size == 1);
  }
}

TEST_CASE("released gradients are suggested only if the run disables them or accumulates gradients") {
  const auto texts = [](const MemoryScenario& now) {
    std::vector<std::string> all;
    const auto with_gradients = [](const MemoryScenario& s) {
      const bool releases = s.release_gradients && s.offload_optimizer && s.gradient_accumulation_steps == 1;
      MemoryNeed all = need(s);
      (releases ? all.host : all.device) += 24 * kGiB;
      return all;
    };
    const int64_t device = with_gradients(now).device;
    for (const MemoryChange& change :
         changes_that_fit(now, 1, {.device = device - 8 * kGiB, .host = kHostBytes}, with_gradients, 20)) {
      all.push_back(change.text);
    }
    return all;
  };
  MemoryScenario now{.recompute = Recomputation::kTiled,
                     .micro_batch_size = 2,
                     .gradient_accumulation_steps = 1,
                     .zero_stage = 2,
                     .offload_optimizer = true,
                     .may_offload_param = false,
                     .may_offload_activations = false};
  CHECK(texts(now).empty());
  now.may_release_gradients = true;  // need() considers the change itself
  CHECK(texts(now).empty());
  now.may_release_gradients = false;
  now.forbids_release = true;
  const std::string on_host = ", with 24.00 GiB more host memory per rank";
  CHECK(texts(now) == std::vector<std::string>{"release_gradients auto" + on_host});
  now.gradient_accumulation_steps = 4;
  const std::string larger = "train_micro_batch_size_per_gpu 8 with gradient_accumulation_steps 1";
  CHECK(texts(now) == std::vector<std::string>{larger + " and release_gradients auto" + on_host});
  now.forbids_release = false;
  now.may_release_gradients = true;
  CHECK(texts(now) == std::vector<std::string>{larger + on_host});
  now.gradient_accumulation_steps = 16;  // activations of 32 sequences do not fit
  CHECK(texts(now).empty());
}

TEST_CASE("optional FP8 casts of weights are dropped first") {
  MemoryScenario fp8 = kRun;
  fp8.keeps_casts = true;
  const auto with_casts = [](const MemoryScenario& s) {
    MemoryNeed all = need(s);
    if (s.keeps_casts) all.device += 12 * kGiB;
    return all;
  };
  const std::vector<MemoryChange> found =
      changes_that_fit(fp8, 2, {.device = 96 * kGiB, .host = kHostBytes}, with_casts);
  REQUIRE(found.size() == 2);
  CHECK(found[0].text == "fp8.cache_weights auto");
  CHECK(found[0].saves == 12 * kGiB);
  const std::vector<MemoryChange> more = changes_that_fit(fp8, 2, {.device = 66 * kGiB, .host = 0}, with_casts, 20);
  CHECK(std::any_of(more.begin(), more.end(),
                    [](const MemoryChange& change) { return change.text.starts_with("fp8.cache_weights auto and "); }));
  for (const MemoryChange& change : changes(60, kRun, kHostBytes, 2, 20)) CHECK_FALSE(change.scenario.keeps_casts);
}

TEST_CASE("sizes that are equal in GiB are shown in MiB") {
  const int64_t bytes = int64_t{604} << 20;
  CHECK(compared_sizes(bytes, bytes - (1 << 20)) == std::pair<std::string, std::string>("604.00 MiB", "603.00 MiB"));
  CHECK(compared_sizes(3 * bytes, bytes) == std::pair<std::string, std::string>("1.77 GiB", "0.59 GiB"));
}

}  // namespace
}  // namespace mpzero
