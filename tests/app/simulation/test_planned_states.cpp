#include <algorithm>
#include <memory>
#include <numeric>

#include "app/simulation/planned_states.hpp"
#include "parallel/optimizer/adamw_kernels.hpp"
#include "parallel/zero/flat_unit.hpp"
#include "parallel/zero/zero_engine.hpp"
#include "tests/parallel/stub_communicator.hpp"
#include "tests/parallel/toy_codec.hpp"

// After c10's headers, one of which defines CHECK.
#include "tests/catch.hpp"

namespace mpzero::parallel {
namespace {

// An embedding, layers of one size, a head; none divides evenly.
std::vector<UnitSpec> make_units() {
  std::vector<UnitSpec> units{{.name = "embedding", .parameters = {{"e", {101, 33}}}}};
  for (int layer = 0; layer < 9; ++layer) {
    units.push_back({.name = "layers." + std::to_string(layer), .parameters = {{"a", {77, 33}}, {"b", {33}}}});
  }
  units.push_back({.name = "head", .parameters = {{"n", {33}}, {"h", {101, 33}}}});
  return units;
}

// Forward and backward.
std::vector<size_t> make_uses(size_t units) {
  std::vector<size_t> uses(units);
  std::iota(uses.begin(), uses.end(), size_t{0});
  for (size_t layer = units - 1; layer-- > 1;) uses.push_back(layer);
  return uses;
}

constexpr ParallelLayout kTwoRanks{.ranks_per_node = 2};

// Oracle: the memory_use() of an engine on the CPU.
void check_against_engine(const ZeroOptions& options, const ParallelLayout& ranks) {
  const std::vector<UnitSpec> units = make_units();
  const std::vector<size_t> uses = make_uses(units.size());
  // Of one rank, without the others: an engine can be created, but not run.
  StubCommunicator intra_node(ranks.ranks_per_node), inter_node(ranks.nodes);
  const Levels levels = ranks.nodes > 1 ? Levels(intra_node, inter_node) : Levels(intra_node);
  ZeroEngine engine(units, options, levels, levels);
  engine.parameters().plan(engine.parts().uses(uses));
  const MemoryUse actual = engine.memory_use();
  const MemoryUse computed = plan::planned_states(units, options, ranks, uses);
  CAPTURE(options.stage, ranks.nodes, ranks.ranks_per_node, options.gradient_accumulation_steps,
          options.limits.reduce_bucket_size);
  CHECK(computed.parameters == actual.parameters);
  CHECK(computed.gradients == actual.gradients);
  CHECK(computed.optimizer_states == actual.optimizer_states);
  CHECK(computed.units_in_flight == actual.units_in_flight);
  CHECK(host_bytes(computed) == host_bytes(actual));
  CHECK(device_bytes(actual) > 0);
}

// The layers' larger matrices.
std::shared_ptr<const WeightCodec> codec_of_layers() {
  std::vector<std::vector<CodedRange>> ranges(make_units().size());
  for (size_t u = 1; u + 2 < ranges.size(); ++u) ranges[u] = {{.begin = 0, .count = 77 * 33}};
  return std::make_shared<ToyCodec>(ranges);
}

TEST_CASE("planned sizes of states match the engine") {
  std::vector<ZeroOptions> variants(1);
  for (const Compression& compression :
       {Compression{.gradient_bits = 8}, Compression{.gradient_bits = 4}, Compression{.weights = true},
        Compression{.gradient_bits = 8, .weights = true}}) {
    variants.emplace_back().compression = compression;
  }
  variants.emplace_back().codec = codec_of_layers();
  for (const char* pattern : {"e", "a", "^[hb]$"})
    variants.emplace_back().frozen = {pattern};  // a unit, parts of others
  for (const WeightCodes codes : {WeightCodes::kInt8, WeightCodes::kNf4}) {
    variants.emplace_back().frozen = {"a"};
    variants.back().codes = codes;
  }
  for (const at::ScalarType accumulation : {at::kFloat, at::kBFloat16}) {
    variants.emplace_back().accumulation_dtype = accumulation;
    variants.back().dtype = variants.back().communication_dtype = at::kFloat;
  }
  for (size_t i = 0; i < variants.size(); ++i) {
    ZeroOptions options = variants[i];
    const bool compressed = options.compression.gradient_bits > 0 || options.compression.weights;
    for (options.stage = 0; options.stage <= 3; ++options.stage) {
      if ((options.codec && options.stage < 3) || (compressed && options.stage == 0)) continue;
      for (const ParallelLayout& ranks : std::vector<ParallelLayout>{{1, 1}, {1, 2}, {1, 5}, {2, 2}, {3, 1}, {2, 5}}) {
        if (options.stage == 0 && ranks.nodes > 1) continue;
        for (const int64_t steps : {1, 4}) {
          for (const int64_t bucket : {int64_t{1}, int64_t{6000}, int64_t{500'000'000}}) {
            CAPTURE(i);
            options.gradient_accumulation_steps = steps;
            options.limits.reduce_bucket_size = options.limits.gather.prefetch_bucket_size = bucket;
            check_against_engine(options, ranks);
          }
        }
      }
    }
  }
}

TEST_CASE("only a shard group of peer GPUs needs a buffer for received shards") {
  const std::vector<UnitSpec> units = make_units();
  const std::vector<size_t> uses = make_uses(units.size());
  ZeroOptions options;
  options.stage = 2;
  options.device = at::Device(at::kCUDA, 0);
  const auto buffer = [&](const ParallelLayout& ranks, int peer_gpus) {
    return static_cast<double>(plan::planned_states(units, options, ranks, uses, peer_gpus).units_in_flight -
                               plan::planned_states(units, options, ranks, uses, /*peer_gpus=*/1).units_in_flight);
  };
  // The head in bf16, padded.
  CHECK(buffer({.nodes = 1, .ranks_per_node = 2}, 2) == Approx(102 * 33 * 2).epsilon(0.07));
  CHECK(buffer({.nodes = 2, .ranks_per_node = 2}, 2) == Approx(102 * 33 * 2).epsilon(0.07));
  CHECK(buffer({.nodes = 1, .ranks_per_node = 4}, 2) == 0);
  options.device = at::kCPU;
  CHECK(buffer({.nodes = 1, .ranks_per_node = 2}, 2) == 0);
}

TEST_CASE("only stage 3 quantizes gathers, of units on the device in shard groups of several ranks") {
  const std::vector<UnitSpec> units = make_units();
  const std::vector<size_t> uses = make_uses(units.size());
  ZeroOptions options;
  options.stage = 3;
  options.limits.gather.prefetch_bucket_size = 1;
  for (const ParallelLayout& ranks : std::vector<ParallelLayout>{{1, 1}, {1, 2}, {2, 2}, {3, 1}, {2, 5}}) {
    options.codec = nullptr;
    const int64_t in_bf16 = plan::planned_states(units, options, ranks, uses).units_in_flight;
    options.codec = codec_of_layers();
    const std::vector<bool> in_codes = ZeroEngine::units_in_codes(units, options, ranks);
    for (size_t u = 0; u < units.size(); ++u) {
      CHECK(in_codes[u] == (ranks.ranks_per_node > 1 && u > 0 && u + 2 < units.size()));
    }
    // The same number of units at a time: nothing is gathered ahead.
    const int64_t in_flight = plan::planned_states(units, options, ranks, uses).units_in_flight;
    CHECK((ranks.ranks_per_node > 1 ? in_flight < in_bf16 : in_flight == in_bf16));
  }
  options.device = at::Device(at::kCUDA, 0);
  const auto any = [&] { return std::ranges::count(ZeroEngine::units_in_codes(units, options, kTwoRanks), true) > 0; };
  CHECK(any());
  options.parameter_placement = Placement::kHost;
  CHECK_FALSE(any());
  options.parameter_placement = Placement::kDevice;
  options.stage = 2;
  CHECK_FALSE(any());
}

TEST_CASE("frozen parameters have no gradients and states, and NF4 codes are smaller") {
  const std::vector<UnitSpec> units = make_units();
  const std::vector<size_t> uses = make_uses(units.size());
  for (const int stage : {0, 1, 2, 3}) {
    for (const ParallelLayout& ranks : std::vector<ParallelLayout>{{1, 1}, {1, 2}, {2, 2}, {2, 5}}) {
      if (stage == 0 && ranks.nodes > 1) continue;
      ZeroOptions options;
      options.stage = stage;
      const auto planned = [&](const char* pattern) {
        options.frozen = {pattern};
        return plan::planned_states(units, options, ranks, uses);
      };
      const MemoryUse all = plan::planned_states(units, options, ranks, uses);
      for (const char* pattern : {"e", "a", "^[hb]$"}) {
        const MemoryUse use = planned(pattern);
        CHECK(use.gradients < all.gradients);
        CHECK(use.optimizer_states < all.optimizer_states);
      }
      // All layers, by their larger matrix: 2541 of 2574 elements.
      const auto kept = static_cast<double>(all.optimizer_states - planned("a").optimizer_states);
      const int64_t shards = stage == 0 ? 1 : ranks.ranks();
      CHECK(kept == Approx(9.0 * 77 * 33 * 12 / static_cast<double>(shards)).epsilon(0.15));
    }
  }
  // Nine layers of 2541 frozen values, of which each is padded to a group.
  ZeroOptions options;
  options.stage = 0;
  options.frozen = {"a"};
  const int64_t plain = plan::planned_states(units, options, {1, 1}, uses).parameters;
  options.codes = WeightCodes::kNf4;
  const int64_t nf4 = plan::planned_states(units, options, {1, 1}, uses).parameters;
  const auto of_layer = [](int64_t numel) { return FlatLayout(numel, 1).padded_numel() * 2; };
  CHECK(plain - nf4 == 9 * (of_layer(77 * 33) - of_layer(code_bytes(WeightCodes::kNf4, kCodedGroup) / 2)));
}

TEST_CASE("states offloaded from a GPU move to the host") {
  const std::vector<UnitSpec> units = make_units();
  const std::vector<size_t> uses = make_uses(units.size());
  ZeroOptions options;
  options.stage = 3;
  const MemoryUse on_cpu = plan::planned_states(units, options, kTwoRanks, uses);
  options.device = at::Device(at::kCUDA, 0);
  const MemoryUse kept = plan::planned_states(units, options, kTwoRanks, uses);
  CHECK(kept.parameters == on_cpu.parameters);
  // One additional buffer, for the shards of the largest unit, the head, that the other rank sends.
  CHECK(kept.units_in_flight - on_cpu.units_in_flight == FlatLayout(101 * 33 + 33, 2).padded_numel() * 2);
  CHECK(host_bytes(kept) == 0);
  options.optimizer_placement = Placement::kHost;
  const MemoryUse offloaded = plan::planned_states(units, options, kTwoRanks, uses);
  CHECK(offloaded.optimizer_states == 0);
  CHECK(offloaded.host_optimizer_states == kept.optimizer_states);
  CHECK(offloaded.parameters == kept.parameters);
  // Buffers of one block for bf16 gradients and bf16 parameters in transfer.
  CHECK(offloaded.host_staging % (kHostBlock * 4) == 0);
  CHECK(offloaded.host_staging > 0);
  CHECK(offloaded.host_spares == 0);
  // Released gradients are on the host. The GPU has buffers for two units of each length.
  options.stage = 0;
  options.release_gradients = true;
  const MemoryUse released = plan::planned_states(units, options, {.nodes = 1, .ranks_per_node = 1}, uses);
  options.release_gradients = false;
  const MemoryUse unreleased = plan::planned_states(units, options, {.nodes = 1, .ranks_per_node = 1}, uses);
  options.stage = 3;
  CHECK(released.host_gradients == unreleased.gradients);
  CHECK(unreleased.host_gradients == 0);
  CHECK(released.gradients < unreleased.gradients);
  CHECK(released.host_staging == unreleased.host_staging / 2);
  CHECK(released.host_optimizer_states == unreleased.host_optimizer_states);
  options.parameter_placement = Placement::kHost;
  const MemoryUse all = plan::planned_states(units, options, kTwoRanks, uses);
  CHECK(all.parameters == 0);
  CHECK(all.host_parameters == kept.parameters);
  CHECK(all.host_staging == offloaded.host_staging);
  options.optimizer_host_ratio = 0.5;
  const MemoryUse half = plan::planned_states(units, options, kTwoRanks, uses);
  CHECK(half.optimizer_states + half.host_optimizer_states == kept.optimizer_states);
  CHECK(half.optimizer_states > 0);
  CHECK(half.host_optimizer_states > 0);
  // Spare states for the units that the host updates, within the requested bytes.
  options.host_update.extra_bytes = 1 << 30;
  CHECK(plan::planned_states(units, options, kTwoRanks, uses).host_spares == half.host_optimizer_states);
  // Moments in bf16: 8 of 12 bytes, on the GPU and on the host.
  options.moment_dtype = at::kBFloat16;
  const MemoryUse low = plan::planned_states(units, options, kTwoRanks, uses);
  CHECK(low.optimizer_states == half.optimizer_states / 3 * 2);
  CHECK(low.host_optimizer_states == half.host_optimizer_states / 3 * 2);
  CHECK(low.host_spares == low.host_optimizer_states);
  options.overlap = false;
  CHECK(plan::planned_states(units, options, kTwoRanks, uses).host_spares == 0);
}

}  // namespace
}  // namespace mpzero::parallel
