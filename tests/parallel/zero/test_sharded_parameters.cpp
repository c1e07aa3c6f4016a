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
  explicit Units(const std::vector<int64_t>& lengths, int ranks = 2) {
    for (const int64_t length : lengths) {
      layouts.emplace_back(length, ranks);
      if (ranks == 1) {
        specs.push_back({.name = "unit " + std::to_string(specs.size()), .parameters = {{"weight", {length}}}});
        continue;
      }
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

TEST_CASE("gathers create no buffers beyond those of the plan and do not share buffers") {
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

namespace {

// Steps of a GradientStore with released units, whose copies complete at random: at the latest when before_reuse()
// waits for them. The reference is the sum that the communicator's ranks form of each unit's gradient.
class ReleasedSteps {
 public:
  ReleasedSteps(const Units& units, Communicator& communicator, const GradientStore::Options& options, uint32_t seed)
      : units_(units),
        ranks_(communicator.world_size()),
        options_(options),
        store_(units.specs, units.layouts, 0, communicator, options),
        random_(seed) {
    store_.on_summed([this](size_t unit) { take(unit); }, [this](size_t unit) { copy(unit); });
  }

  const GradientStore& store() const { return store_; }

  // Like a pass: the first unit's gradient is begun first and reduced last.
  void step() {
    ++step_;
    store_.begin_step();
    store_.begin_micro_batch(true);
    begin(0);
    for (size_t unit = units_.specs.size(); unit-- > 1;) {
      begin(unit);
      store_.reduce(unit);
      while (!copies_.empty() && random_() % 3 == 0) copy(copies_[random_() % copies_.size()].unit);
    }
    store_.reduce(0);
    store_.finish_step();
    REQUIRE(summed_ == static_cast<int64_t>(units_.specs.size()) * step_);
    for (size_t unit = 0; unit < units_.specs.size(); ++unit) {
      if (!options_.released[unit]) check(unit, step_, store_.shard(unit));
    }
  }

 private:
  struct Copy {
    size_t unit = 0;
    int64_t step = 0;
    at::Tensor gradient;
  };

  double value(size_t unit, int64_t step) const { return static_cast<double>(step * 16 + static_cast<int64_t>(unit)); }
  void check(size_t unit, int64_t step, const at::Tensor& sum) const {
    const int64_t used = units_.layouts[unit].shard_used(0);
    REQUIRE(sum.narrow(0, 0, used).eq(value(unit, step) * ranks_).all().item<bool>());
    // Padding.
    REQUIRE(sum.narrow(0, used, sum.numel() - used).eq(0).all().item<bool>());
  }
  void begin(size_t unit) {
    const GradientViews destination = store_.gradients(unit);
    REQUIRE(!destination.accumulate);
    for (const at::Tensor& view : destination.views) view.fill_(value(unit, step_));
  }
  void take(size_t unit) {
    ++summed_;
    if (options_.released[unit]) copies_.push_back({unit, step_, store_.shard(unit)});
  }
  void copy(size_t unit) {
    for (auto copy = copies_.begin(); copy != copies_.end();) {
      if (copy->unit != unit) {
        ++copy;
        continue;
      }
      check(unit, copy->step, copy->gradient);
      copy = copies_.erase(copy);
    }
  }

  const Units& units_;
  int ranks_;
  GradientStore::Options options_;
  GradientStore store_;
  std::minstd_rand random_;
  std::vector<Copy> copies_;  // in progress
  int64_t step_ = 0, summed_ = 0;
};

}  // namespace

TEST_CASE("released gradients are not overwritten before they are copied") {
  for (uint32_t seed = 0; seed < 200; ++seed) {
    std::minstd_rand random(seed);
    // Some units differ in their padding only.
    static constexpr std::array kLengths{200, 1000, 997, 5000};
    const bool alone = random() % 2 == 0;
    std::vector<int64_t> lengths;
    for (uint64_t u = 2 + random() % 8; u > 0; --u) lengths.push_back(kLengths[random() % kLengths.size()]);
    const Units units(lengths, alone ? 1 : 2);
    GradientStore::Options options{.partitioned = random() % 2 == 0, .overlap = random() % 4 > 0, .limits = {}};
    options.limits.reduce_bucket_size = random() % 2 == 0 ? 1 : 1'000'000;
    for (size_t u = 0; u < lengths.size(); ++u) options.released.push_back(random() % 8 > 0);
    CAPTURE(seed, alone, options.partitioned, options.overlap, lengths);
    TwinRanks twins;
    LocalCommunicator local;
    ReleasedSteps run(units, alone ? static_cast<Communicator&>(local) : twins, options, seed);
    const int planned = twins.buffers_made;
    for (int step = 0; step < 5; ++step) run.step();
    REQUIRE(twins.buffers_made == planned);
  }
}

TEST_CASE("released gradients of a single rank need the memory of two layers") {
  const Units units(std::vector<int64_t>(32, 1000), 1);
  LocalCommunicator communicator;
  GradientStore::Options options{.partitioned = true, .limits = {}, .communication_dtype = at::kBFloat16};
  const GradientStore kept(units.specs, units.layouts, 0, communicator, options);
  options.released.assign(32, true);
  const GradientStore released(units.specs, units.layouts, 0, communicator, options);
  CHECK(kept.memory_use().gradients == 32 * 2 * units.layouts.front().padded_numel());
  CHECK(released.memory_use().gradients == 2 * 2 * units.layouts.front().padded_numel());
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
