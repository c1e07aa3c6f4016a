// In which order ParameterStore starts its gathers, where shards are written by a host that may be late. The
// communicators are stand-ins that record the order; the writer's gates are opened by the test.

#include <ATen/ops/eq.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <random>
#include <stdexcept>

#include "parallel/zero/parameter_store.hpp"
#include "tests/catch.hpp"
#include "tests/parallel/toy_codec.hpp"
#include "tests/parallel/twin_ranks.hpp"

namespace mpzero::parallel {
namespace {

// Notes what it gathers, as "within 3" for unit 3, whose shards have the third length, or "within 3, codes" for its
// codes; other tensors, of codes, by type and length.
class NotedRanks final : public TwinRanks {
 public:
  NotedRanks(const char* level, const std::vector<int64_t>& shard_lengths, std::vector<std::string>& notes)
      : level_(level), shard_lengths_(shard_lengths), notes_(notes) {}
  std::unique_ptr<PendingCollective> all_gather(const at::Tensor& shard, const at::Tensor& full) override {
    const auto unit = std::find(shard_lengths_.begin(), shard_lengths_.end(), shard.numel());
    const bool codes = shard.scalar_type() == at::kByte;
    if (unit == shard_lengths_.end()) {
      notes_.push_back(fmt::format("{} {} of {}", level_, shard.numel(), c10::toString(shard.scalar_type())));
    } else {
      notes_.push_back(fmt::format("{} {}{}", level_, unit - shard_lengths_.begin(), codes ? ", codes" : ""));
    }
    return TwinRanks::all_gather(shard, full);
  }

 private:
  const char* level_;
  std::vector<int64_t> shard_lengths_;
  std::vector<std::string>& notes_;
};

// The host of one rank: says what it has written, and must not be waited for where it has not.
class GatedWriter final : public ShardWriter {
 public:
  explicit GatedWriter(size_t units) : open(units, false) {}
  bool written(size_t unit) override { return open[unit]; }
  void wait(size_t unit) override {
    if (!open[unit] && !may_wait) throw std::logic_error(fmt::format("waits for unit {}", unit));
  }

  std::vector<bool> open;
  bool may_wait = false;
};

// A rank of two nodes with two ranks each, all with the same data.
class Rank {
 public:
  // `in_codes`: units whose parameters are gathered as codes, but for their first ones.
  Rank(size_t units, const GatherLimits& limits, const std::vector<bool>& in_codes = {})
      : writer(units), unit_specs_(units) {
    std::vector<int64_t> shards, node_shards;
    std::vector<std::vector<CodedRange>> ranges(units);
    for (size_t u = 0; u < units; ++u) {
      const int64_t length = 1000 * static_cast<int64_t>(u + 1);
      unit_specs_[u] = {.name = fmt::format("unit {}", u), .parameters = {{"norm", {10}}, {"weight", {length - 10}}}};
      if (!in_codes.empty() && in_codes[u]) ranges[u] = {{.begin = 10, .count = length - 10}};
      layouts_.emplace_back(length, 4, 2);
      shards.push_back(layouts_[u].shard_numel());
      node_shards.push_back(layouts_[u].node_shard_numel());
    }
    within_ = std::make_unique<NotedRanks>("within", node_shards, gathers);
    between_ = std::make_unique<NotedRanks>("between", shards, gathers);
    store = make_parameter_store(unit_specs_, layouts_, /*shard_index=*/0, {*within_, *between_},
                                 {.sharded = true,
                                  .codec = in_codes.empty() ? nullptr : std::make_shared<ToyCodec>(std::move(ranges)),
                                  .limits = limits,
                                  .dtype = at::kBFloat16});
    store->set_writer(writer);
  }

  // All units, with values that tell unit and step.
  void publish(const std::vector<Written>& when, int step) {
    store->invalidate();
    for (size_t u = 0; u < when.size(); ++u) {
      store->shard(u).fill_(value(u, step));
      store->publish(u, when[u]);
    }
  }
  bool use(size_t unit, int step) {
    const std::span<const at::Tensor> views = store->gather(unit);
    const at::Tensor scales = store->scales(unit);
    const bool right = views.front().eq(value(unit, step)).all().item<bool>() &&
                       (scales.defined() ? scales[0][0].item<double>() == value(unit, step)
                                         : views.back().eq(value(unit, step)).all().item<bool>());
    store->release(unit);
    return right;
  }

  std::vector<std::string> gathers;
  GatedWriter writer;
  std::unique_ptr<ParameterStore> store;

 private:
  // Exact in bf16.
  static double value(size_t unit, int step) { return static_cast<double>(10 * step) + static_cast<double>(unit); }

  std::vector<UnitSpec> unit_specs_;
  std::vector<FlatLayout> layouts_;
  std::unique_ptr<NotedRanks> within_, between_;
};

constexpr GatherLimits kFewest{
    .prefetch_bucket_size = 0, .param_persistence_threshold = 0, .max_live_parameters = 0, .max_reuse_distance = 0};

std::vector<size_t> forward_and_backward(size_t units) {
  std::vector<size_t> uses;
  for (size_t u = 0; u < units; ++u) uses.push_back(u);
  for (size_t u = units; u-- > 0;) uses.push_back(u);
  return uses;
}

}  // namespace

TEST_CASE("a gather within the node waits only for host updates of its unit and earlier units") {
  constexpr size_t kUnits = 7;
  // Nothing is gathered ahead, or the next two units and one more.
  for (const int64_t prefetch : {0, 20'000}) {
    GatherLimits limits = kFewest;
    limits.prefetch_bucket_size = prefetch;
    limits.max_live_parameters = prefetch == 0 ? 0 : 1'000'000;
    Rank rank(kUnits, limits);
    for (int step = 0; step < 3; ++step) {
      rank.writer.open.assign(kUnits, false);
      rank.store->plan(forward_and_backward(kUnits));
      rank.publish(std::vector<Written>(kUnits, Written::kLater), step);
      for (const size_t unit : forward_and_backward(kUnits)) {
        CAPTURE(prefetch, step, unit);
        rank.writer.open[unit] = true;
        REQUIRE(rank.use(unit, step));
      }
    }
  }
}

TEST_CASE("ranks whose hosts finish at different times start the same gathers in the same order") {
  std::ptrdiff_t gathers_of_codes = 0;
  for (unsigned seed = 0; seed < 300; ++seed) {
    CAPTURE(seed);
    std::mt19937 random(seed);
    const size_t units = 3 + random() % 6;
    const GatherLimits limits{.prefetch_bucket_size = static_cast<int64_t>(random() % 4 * 5'000),
                              .param_persistence_threshold = 0,
                              .max_live_parameters = static_cast<int64_t>(random() % 4 * 10'000),
                              .max_reuse_distance = static_cast<int64_t>(random() % 4 * 10'000)};
    // The first host is always done, the second never before it is waited for, the third at random.
    std::vector<bool> in_codes;
    for (size_t u = 0; u < units && seed % 2 == 0; ++u) in_codes.push_back(random() % 3 > 0);
    std::array<Rank, 3> ranks{Rank(units, limits, in_codes), Rank(units, limits, in_codes),
                              Rank(units, limits, in_codes)};
    for (Rank& rank : ranks) rank.writer.may_wait = true;
    ranks[0].writer.open.assign(units, true);
    std::vector<Written> when(units);
    for (Written& each : when) each = random() % 3 == 0 ? Written::kNow : Written::kLater;
    for (int step = 0; step < 4; ++step) {
      std::vector<size_t> uses = forward_and_backward(units);
      if (random() % 4 == 0) uses.resize(1 + random() % uses.size());
      const bool another_first = random() % 4 == 0;
      for (Rank& rank : ranks) {
        rank.store->plan(uses);
        if (another_first) rank.publish(when, step + 4);
        rank.publish(when, step);
      }
      ranks[2].writer.open.assign(units, false);
      for (const size_t unit : uses) {
        for (size_t u = 0; u < units; ++u) {
          if (random() % 6 == 0) ranks[2].writer.open[u] = true;
        }
        for (Rank& rank : ranks) REQUIRE(rank.use(unit, step));
      }
    }
    for (Rank& rank : ranks) rank.store->invalidate();
    const auto of_codes = [](const std::string& note) { return note.ends_with("codes"); };
    const bool any = std::find(in_codes.begin(), in_codes.end(), true) != in_codes.end();
    CHECK((any || std::none_of(ranks[0].gathers.begin(), ranks[0].gathers.end(), of_codes)));
    gathers_of_codes += std::count_if(ranks[0].gathers.begin(), ranks[0].gathers.end(), of_codes);
    CHECK(ranks[1].gathers == ranks[0].gathers);
    CHECK(ranks[2].gathers == ranks[0].gathers);
  }
  CHECK(gathers_of_codes > 0);
}

TEST_CASE("each published shard is gathered between nodes once, whether or not its unit is used") {
  constexpr size_t kUnits = 4;
  for (const Written when : {Written::kNow, Written::kLater}) {
    Rank rank(kUnits, kFewest);
    rank.writer.may_wait = true;
    rank.store->plan(forward_and_backward(kUnits));
    rank.publish(std::vector<Written>(kUnits, when), 0);
    rank.publish(std::vector<Written>(kUnits, when), 1);
    CHECK(rank.use(0, 1));
    rank.store->invalidate();
    for (size_t u = 0; u < kUnits; ++u) {
      CHECK(std::count(rank.gathers.begin(), rank.gathers.end(), fmt::format("between {}", u)) == 2);
    }
  }
}

TEST_CASE("shards that are available at once are gathered between nodes before the first use") {
  Rank rank(4, kFewest);
  rank.store->plan(forward_and_backward(4));
  rank.publish(std::vector<Written>(4, Written::kNow), 0);
  for (size_t u = 0; u < 4; ++u) {
    CHECK(std::count(rank.gathers.begin(), rank.gathers.end(), fmt::format("between {}", u)) == 1);
  }
}

}  // namespace mpzero::parallel
