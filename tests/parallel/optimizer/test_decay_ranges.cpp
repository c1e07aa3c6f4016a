#include "parallel/optimizer/decay_ranges.hpp"
#include "parallel/zero/flat_unit.hpp"
#include "tests/catch.hpp"

namespace mpzero::parallel {
namespace {

using Run = DecayRanges::Run;

const UnitSpec kUnit{.name = "layer",
                     .parameters = {{"input_layernorm.weight", {10}},
                                    {"q_proj.weight", {4, 10}},
                                    {"q_proj.bias", {4}},
                                    {"q_norm.weight", {6}},
                                    {"o_proj.weight", {10, 4}}}};
const std::vector<std::string> kNoDecay{"norm", "bias"};

TEST_CASE("a pattern matches any part of a parameter's name") {
  CHECK(matches_any("model.layers.0.input_layernorm.weight", kNoDecay));
  CHECK(matches_any("model.norm.weight", kNoDecay));
  CHECK(matches_any("model.layers.0.self_attn.q_proj.bias", kNoDecay));
  CHECK_FALSE(matches_any("model.layers.0.self_attn.q_proj.weight", kNoDecay));
  CHECK_FALSE(matches_any("model.norm.weight", {}));
}

TEST_CASE("adjacent parameters with the same decay form one run, and padding is decayed") {
  CHECK(DecayRanges(kUnit, 0, 128, kNoDecay).runs() ==
        std::vector<Run>{{0, 10, false}, {10, 50, true}, {50, 60, false}, {60, 128, true}});
  CHECK(DecayRanges(kUnit, 0, 128, {}).runs() == std::vector<Run>{{0, 128, true}});
  CHECK(DecayRanges(128).runs() == std::vector<Run>{{0, 128, true}});
  CHECK(DecayRanges(0).runs().empty());
}

TEST_CASE("shards begin and end within parameters") {
  CHECK(DecayRanges(kUnit, 5, 50, kNoDecay).runs() == std::vector<Run>{{0, 5, false}, {5, 45, true}, {45, 50, false}});
  CHECK(DecayRanges(kUnit, 55, 3, kNoDecay).runs() == std::vector<Run>{{0, 3, false}});
  CHECK(DecayRanges(kUnit, 200, 64, kNoDecay).runs() == std::vector<Run>{{0, 64, true}});
  // All shards together are the unit, whatever their number.
  for (const int num_shards : {1, 2, 3, 7}) {
    const FlatLayout layout(kUnit.numel(), num_shards);
    int64_t without = 0;
    for (int shard = 0; shard < num_shards; ++shard) {
      int64_t end = 0;
      const DecayRanges ranges(kUnit, layout.shard_begin(shard), layout.shard_numel(), kNoDecay);
      for (const Run& run : ranges.runs()) {
        CHECK(run.begin == end);
        end = run.end;
        if (!run.decays) without += run.end - run.begin;
      }
      CHECK(end == layout.shard_numel());
    }
    CHECK(without == 20);
  }
}

TEST_CASE("a range is visited run by run, each with its decay") {
  const DecayRanges ranges(kUnit, 0, 128, kNoDecay);
  AdamWUpdate update{};
  update.decay = 0.5F;
  update.step_size = 0.25F;
  std::vector<Run> visited;
  const auto visit = [&](int64_t begin, int64_t end, const AdamWUpdate& own) {
    CHECK(own.step_size == 0.25F);
    CHECK((own.decay == 0.5F || own.decay == 1.0F));
    visited.push_back({begin, end, own.decay == 0.5F});
  };
  ranges.visit(8, 60, update, visit);
  CHECK(visited == std::vector<Run>{{8, 10, false}, {10, 50, true}, {50, 60, false}});
  visited.clear();
  ranges.visit(20, 30, update, visit);
  CHECK(visited == std::vector<Run>{{20, 30, true}});
  visited.clear();
  ranges.visit(50, 50, update, visit);
  CHECK(visited.empty());
}

}  // namespace
}  // namespace mpzero::parallel
