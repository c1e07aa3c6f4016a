// The buffers of ParameterStore and GradientStore: all are created where the stores document it, and none has two
// users.

#include <ATen/ops/eq.h>

#include <array>
#include <optional>
#include <random>
#include <utility>

#include "parallel/zero/gradient_store.hpp"
#include "parallel/zero/sharded_parameters.hpp"
#include "tests/catch.hpp"
#include "tests/parallel/toy_codec.hpp"
#include "tests/parallel/twin_ranks.hpp"

namespace mpzero::parallel {
namespace {

// Units of the given lengths.
struct Units {
  explicit Units(const std::vector<int64_t>& lengths) {
    for (const int64_t length : lengths) {
      layouts.emplace_back(length, 2);
      // Each rank's shard begins alike, since TwinRanks has the same data in both.
      const int64_t shard = layouts.back().shard_numel();
      specs.push_back({.name = "unit " + std::to_string(specs.size()),
                       .parameters = {{"norm", {10}},
                                      {"weight", {shard - 10}},
                                      {"second norm", {10}},
                                      {"second weight", {length - shard - 10}}}});
    }
  }
  std::vector<UnitSpec> specs;
  std::vector<FlatLayout> layouts;
};

// `scales`: of the weights, if they are codes.
bool holds(std::span<const at::Tensor> views, size_t unit, const at::Tensor& scales) {
  const auto value = static_cast<double>(unit + 1);
  const bool in_codes = scales.defined();
  bool all = views.size() == 4;
  for (size_t p = 0; p < views.size(); ++p) {
    const bool codes = in_codes && p % 2 == 1;
    all = all && views[p].scalar_type() == (codes ? at::kByte : at::kBFloat16) &&
          views[p].eq(codes ? 255.0 : value).all().item<bool>();
  }
  // The other rank has no maximum of its own.
  return all && (!in_codes || scales[0][0].item<double>() == value);
}

// The weights of some units.
std::shared_ptr<const WeightCodec> random_codec(const Units& units, std::mt19937& random) {
  std::vector<std::vector<CodedRange>> ranges(units.specs.size());
  for (size_t u = 0; u < ranges.size(); ++u) {
    if (random() % 3 == 0) continue;
    for (const size_t p : {1, 3}) {
      ranges[u].push_back(
          {.begin = parameter_offset(units.specs[u], p), .count = units.specs[u].parameters[p].numel()});
    }
  }
  return std::make_shared<const ToyCodec>(std::move(ranges));
}

}  // namespace

TEST_CASE("gathers create no buffers beyond those of the plan, and share none") {
  for (unsigned seed = 0; seed < 300; ++seed) {
    CAPTURE(seed);
    std::mt19937 random(seed);
    std::vector<int64_t> lengths(2 + random() % 7);
    for (int64_t& length : lengths) length = std::array<int64_t, 3>{100, 200, 500}[random() % 3];
    const Units units(lengths);
    TwinRanks communicator;
    // In half of the runs.
    const std::shared_ptr<const WeightCodec> codec = seed % 2 == 0 ? random_codec(units, random) : nullptr;
    ShardedParameters store(units.specs, units.layouts, /*rank=*/0, communicator,
                            {.sharded = true,
                             .codec = codec,
                             .limits = {.prefetch_bucket_size = static_cast<int64_t>(random() % 10 * 100),
                                        .param_persistence_threshold = static_cast<int64_t>(random() % 3 * 100),
                                        .max_live_parameters = static_cast<int64_t>(random() % 20 * 100),
                                        .max_reuse_distance = static_cast<int64_t>(random() % 20 * 100)},
                             .dtype = at::kBFloat16});
    for (size_t u = 0; u < lengths.size(); ++u) store.shard(u).fill_(static_cast<double>(u + 1));
    for (int step = 0; step < 4; ++step) {
      std::vector<size_t> uses(1 + random() % 20);
      for (size_t& unit : uses) unit = random() % lengths.size();
      store.plan(uses);
      if (random() % 3 == 0) store.use_memory(static_cast<int64_t>(random() % 20 * 400));
      const int planned = communicator.buffers_made;
      if (random() % 2 == 0) {
        store.invalidate();
        for (size_t u = 0; u < lengths.size(); ++u) store.publish(u);
      }
      std::optional<std::pair<size_t, std::span<const at::Tensor>>> before;
      for (const size_t unit : uses) {
        const std::span<const at::Tensor> views = store.gather(unit);
        REQUIRE(holds(views, unit, store.scales(unit)));
        if (before) {
          REQUIRE(holds(before->second, before->first, store.scales(before->first)));
          store.release(before->first);
          before.reset();
        }
        if (random() % 4 == 0) {
          before.emplace(unit, views);
        } else {
          store.release(unit);
        }
      }
      if (before) store.release(before->first);
      REQUIRE(communicator.buffers_made == planned);
    }
  }
}

TEST_CASE("gathered units use no more memory than allowed") {
  // An embedding and a head as large as ten layers, which are never gathered at the same time.
  std::vector<int64_t> lengths(22, 100);
  lengths.front() = 1000;
  lengths.back() = 1200;
  const Units units(lengths);
  std::vector<size_t> uses;
  for (size_t u = 0; u < lengths.size(); ++u) uses.push_back(u);
  for (size_t u = lengths.size() - 1; u-- > 1;) uses.push_back(u);
  for (const int64_t bytes : {0, 1, 399, 400, 4'000, 8'000}) {
    TwinRanks communicator;
    ShardedParameters store(units.specs, units.layouts, 0, communicator,
                            {.sharded = true,
                             .limits = {.prefetch_bucket_size = 100,
                                        .param_persistence_threshold = 0,
                                        .max_live_parameters = 1500,
                                        .max_reuse_distance = 0}});
    store.plan(uses);
    const int64_t before = store.memory_use().units_in_flight;
    store.use_memory(bytes);
    const int64_t taken = store.memory_use().units_in_flight - before;
    CAPTURE(bytes, taken);
    CHECK(taken <= bytes);
    // Not all of the amount by which the limit was lowered can be used again; much of it can.
    if (bytes >= 4'000) CHECK(taken > bytes / 2 - 2'000);
  }
}

TEST_CASE("a gradient that is still being summed delays its unit's next one, instead of another buffer") {
  // The embedding's gradient is summed last in a micro-batch and begun first in the next.
  const Units units({5000, 100, 100, 100, 100, 100});
  for (const int64_t bucket : {int64_t{1}, int64_t{1'000'000}}) {
    TwinRanks communicator;
    GradientStore store(
        units.specs, units.layouts, 0, communicator,
        {.partitioned = true, .limits = {.reduce_bucket_size = bucket}, .gradient_accumulation_steps = 3});
    std::vector<size_t> summed;
    store.on_summed([&](size_t unit) { summed.push_back(unit); });
    const int planned = communicator.buffers_made;
    const int64_t bytes = store.memory_use().units_in_flight;
    store.begin_step();
    const auto add = [&](size_t unit, double value) {
      const GradientViews destination = store.gradients(unit);
      REQUIRE(!destination.accumulate);
      for (const at::Tensor& view : destination.views) view.fill_(value);
    };
    for (int micro_batch = 0; micro_batch < 3; ++micro_batch) {
      store.begin_micro_batch(micro_batch == 2);
      const double value = 1 << (3 * micro_batch);
      add(0, value);
      for (size_t unit = units.specs.size(); unit-- > 1;) {
        add(unit, value * static_cast<double>(unit));
        store.reduce(unit);
      }
      store.reduce(0);
    }
    store.finish_step();
    CHECK(communicator.buffers_made == planned);
    CHECK(store.memory_use().units_in_flight == bytes);
    CHECK(summed == std::vector<size_t>{5, 4, 3, 2, 1, 0});
    for (size_t unit = 0; unit < units.specs.size(); ++unit) {
      const double factor = unit == 0 ? 1 : static_cast<double>(unit);
      CHECK(store.shard(unit).eq(2 * 73 * factor).all().item<bool>());
    }
  }
}

}  // namespace mpzero::parallel
