#include <algorithm>
#include <atomic>
#include <limits>

#include "app/memory/layout_choice.hpp"
#include "app/memory/memory_estimate.hpp"
#include "base/error.hpp"
#include "tests/app/resolved_run.hpp"
#include "tests/base/thread_group.hpp"
#include "tests/catch.hpp"

namespace mpzero {
namespace {

using Catch::Contains;
using Catch::EndsWith;
using Catch::Matchers::Message;

constexpr MemoryNeed kMuch{.device = int64_t{1} << 40, .host = int64_t{1} << 40};
const RankPlacement kTwoHostsOfFour{.world_size = 8, .per_host = 4}, kTwoHostsOfOne{.world_size = 2, .per_host = 1};

RunSetup setup_of(const std::string& zero) {
  const std::string file =
      R"({"train_micro_batch_size_per_gpu": 1, "gradient_accumulation_steps": 4, "bf16": {"enabled": true},
                               "zero_optimization": {)" +
      zero + "}}";
  RunSetup setup;
  setup.config = run(file, {"--seq_length=512"}, 8).config;
  setup.model = model::ModelConfig::from_file(MPZERO_SOURCE_DIR "/configs/models/qwen3_0_6b.json");
  return setup;
}

LayoutChoice choose(const std::string& zero, const RankPlacement& ranks, const MemoryNeed& limit = kMuch,
                    const PredictStep& predict = {}) {
  return choose_layout(setup_of(zero), at::kCUDA, ranks, limit, predict);
}

// Predicts a step of one second with one level of ZeRO.
PredictStep two_levels_in(double seconds) {
  return [=](const parallel::ParallelLayout& layout) -> std::optional<PredictedStep> {
    return PredictedStep{.seconds = layout.nodes == 1 ? 1 : seconds};
  };
}

bool is(const LayoutChoice& choice, int nodes, int ranks_per_node) {
  return choice.layout.nodes == nodes && choice.layout.ranks_per_node == ranks_per_node;
}

TEST_CASE("by default each host is a shard group, as with auto") {
  CHECK(is(choose(R"("stage": 3)", kTwoHostsOfOne), 2, 1));
  const RunSetup setup = setup_of(R"("stage": 1)");
  for (const at::Device device : {at::kCPU, at::kCUDA}) {
    CHECK(is(choose_layout(setup, device, kTwoHostsOfFour, kMuch), 2, 4));
  }
}

TEST_CASE("hosts connected by NVLink form one level unless the file configures shard groups") {
  RankPlacement near = kTwoHostsOfFour;
  near.one_nvlink_domain = true;
  const LayoutChoice one = choose(R"("stage": 3)", near);
  CHECK(is(one, 1, 8));
  CHECK_THAT(one.line, Contains("over NVLink"));
  // Who asks for nodes gets them.
  CHECK(is(choose(R"("stage": 3, "zero_hpz_partition_size": "auto")", near), 2, 4));
}

TEST_CASE("the file sets the shard groups") {
  CHECK(is(choose(R"("stage": 3, "zero_hpz_partition_size": "auto")", kTwoHostsOfFour), 2, 4));
  CHECK(is(choose(R"("stage": 3, "zero_hpz_partition_size": 2)", kTwoHostsOfFour), 4, 2));
  CHECK(is(choose(R"("stage": 3, "zero_hpz_partition_size": 8)", kTwoHostsOfFour), 1, 8));
  CHECK(is(choose(R"("stage": 2, "mics_shard_size": 1)", kTwoHostsOfFour), 8, 1));
  // DeepSpeed's defaults, written down.
  CHECK(is(choose(R"("stage": 3, "zero_hpz_partition_size": 1)", kTwoHostsOfFour), 1, 8));
  CHECK(is(choose(R"("stage": 3, "mics_shard_size": -1)", kTwoHostsOfOne), 2, 1));
  CHECK(is(choose(R"("stage": 3, "zero_hpz_partition_size": 1, "mics_shard_size": -1)", kTwoHostsOfFour), 1, 8));
  CHECK(is(choose(R"("stage": 3, "zero_hpz_partition_size": 1, "mics_shard_size": "auto")", kTwoHostsOfFour), 2, 4));
}

TEST_CASE("selects one level for a single host, for uneven hosts, or without sharding") {
  const LayoutChoice one_host = choose(R"("stage": 3)", {.world_size = 8, .per_host = 8});
  CHECK(is(one_host, 1, 8));
  CHECK(one_host.line.empty());
  CHECK(is(choose(R"("stage": 3)", placement_of({0, 0, 0, 1})), 1, 4));
  CHECK(is(choose(R"("stage": 0)", kTwoHostsOfFour), 1, 8));
  CHECK(is(choose(R"("stage": 0, "mics_shard_size": 4)", kTwoHostsOfFour), 1, 8));
}

TEST_CASE("hosts that cannot be shard groups are reported with a remedy") {
  const std::string open = R"("stage": 3, "zero_hpz_partition_size": "auto")";
  const LayoutChoice uneven = choose(open, placement_of({0, 0, 0, 1}));
  CHECK(is(uneven, 1, 4));
  CHECK_THAT(uneven.line, Contains("hosts have 1 to 3 ranks"));
  const LayoutChoice around = choose(open, placement_of({0, 1, 0, 1}));
  CHECK(is(around, 1, 4));
  CHECK_THAT(around.line, Contains("the ranks of a host are not consecutive"));
  // Who asks for one level is told nothing.
  CHECK_THAT(choose(R"("stage": 3, "zero_hpz_partition_size": 1)", placement_of({0, 1, 0, 1})).line,
             !Contains("with one level"));
}

TEST_CASE("warns of shard groups that span hosts") {
  CHECK(choose(R"("stage": 3, "mics_shard_size": 4)", {.world_size = 8, .per_host = 2}).warning ==
        "ds.json: zero_optimization.mics_shard_size 4 creates shard groups that span hosts, so the traffic of every "
        "micro-batch crosses the network; unless NVLink connects the hosts, use 2 (the number of ranks per host) or a "
        "divisor of it.");
  CHECK_THAT(choose(R"("stage": 3, "mics_shard_size": 2)", placement_of({0, 1, 0, 1})).warning,
             Contains("placement of ranks") && Contains("not consecutive"));
  for (const char* within : {R"("stage": 3, "mics_shard_size": 2)", R"("stage": 3, "mics_shard_size": 8)"}) {
    CHECK(choose(within, kTwoHostsOfFour).warning.empty());
  }
}

TEST_CASE("of the layouts that fit, the one with the shorter predicted step is chosen, with a reason") {
  const std::string open = R"("stage": 3, "zero_hpz_partition_size": "auto")";
  const auto seconds = [](double one_level, double two_levels) {
    return [=](const parallel::ParallelLayout& layout) -> std::optional<PredictedStep> {
      return PredictedStep{.seconds = layout.nodes == 1 ? one_level : two_levels, .error = 0.2};
    };
  };
  const LayoutChoice two = choose(open, kTwoHostsOfFour, kMuch, seconds(1.4, 0.2));
  CHECK(is(two, 2, 4));
  CHECK_THAT(two.line, Contains("a step would take 1400 ms instead of 200 ms"));
  const LayoutChoice one = choose(open, kTwoHostsOfFour, kMuch, seconds(0.2, 0.3));
  CHECK(is(one, 1, 8));
  CHECK_THAT(one.line, Contains("but a step would take 300 ms instead of 200 ms"));
  // Where not all can be predicted, the bytes decide.
  const auto not_all = [](const parallel::ParallelLayout& layout) {
    return layout.nodes == 1 ? std::optional(PredictedStep{.seconds = 0.1}) : std::nullopt;
  };
  CHECK(is(choose(open, kTwoHostsOfFour, kMuch, not_all), 2, 4));
}

TEST_CASE("of layouts with equal traffic, one level is chosen without claiming a step time") {
  RunSetup setup = setup_of(R"("stage": 1)");
  const LayoutChoice one = choose_layout(setup, at::kCPU, kTwoHostsOfOne, kMuch);
  CHECK(is(one, 1, 2));
  CHECK_THAT(one.line, Contains("between hosts: ") && EndsWith("; two levels of ZeRO: the same"));
  setup = setup_of(R"("stage": 2)");
  CHECK(is(choose_layout(setup, at::kCPU, kTwoHostsOfOne, kMuch), 2, 1));
  setup.config.gradient_accumulation_steps = 1;
  CHECK(is(choose_layout(setup, at::kCPU, kTwoHostsOfOne, kMuch), 1, 2));
  // Known, and equal.
  const auto equal = [](const parallel::ParallelLayout&) { return std::optional(PredictedStep{.seconds = 0.1}); };
  for (const char* stage : {R"("stage": 1)", R"("stage": 3)"}) {
    CHECK_THAT(choose(stage, kTwoHostsOfOne, kMuch, equal).line, !Contains("instead of"));
  }
}

TEST_CASE("predictions that differ by less than their error are ignored") {
  const std::string open = R"("stage": 3, "zero_hpz_partition_size": "auto")";
  const auto taken = [&](double one_level, double two_levels, double error) {
    return choose(open, kTwoHostsOfFour, kMuch, [=](const parallel::ParallelLayout& layout) {
      return std::optional(PredictedStep{.seconds = layout.nodes == 1 ? one_level : two_levels, .error = error});
    });
  };
  const LayoutChoice near = taken(0.2, 0.215, 0.1);
  CHECK(is(near, 2, 4));
  CHECK_THAT(near.line, !Contains("a step would take"));
  CHECK(is(taken(0.2, 0.23, 0.1), 1, 8));
  // Unknown: 5%.
  CHECK(is(taken(0.2, 0.209, 0), 2, 4));
  CHECK(is(taken(0.2, 0.211, 0), 1, 8));
}

TEST_CASE("shard groups span several hosts only if a size is configured") {
  const RankPlacement ranks{.world_size = 8, .per_host = 2};
  const auto shortest_in_the_middle = [](const parallel::ParallelLayout& layout) {
    return std::optional(PredictedStep{.seconds = layout.nodes == 2 ? 0.1 : 1});
  };
  const std::string open = R"("stage": 3, "zero_hpz_partition_size": "auto")";
  CHECK(is(choose(open, ranks, kMuch, shortest_in_the_middle), 4, 2));
  CHECK(is(choose(R"("stage": 3, "mics_shard_size": 4)", ranks), 2, 4));
}

TEST_CASE("both layouts keep the sequence-parallel ranks") {
  RunSetup setup = setup_of(R"("stage": 3)");
  setup.config.sequence_parallel_size = setup.layout.sequence_ranks = 2;
  for (const double seconds : {0.1, 10.0}) {
    const LayoutChoice choice = choose_layout(setup, at::kCUDA, kTwoHostsOfFour, kMuch, two_levels_in(seconds));
    CHECK(choice.layout.nodes == (seconds < 1 ? 2 : 1));
    CHECK(choice.layout.sequence_ranks == 2);
  }
}

TEST_CASE("if no layout fits, one level is chosen") {
  const std::string open = R"("stage": 3, "zero_hpz_partition_size": "auto")";
  CHECK(is(choose(open, kTwoHostsOfFour, {.device = 1, .host = 1}), 1, 8));
}

TEST_CASE("optional spare states on the host do not affect the choice") {
  const std::string open = R"("stage": 2, "mics_shard_size": "auto", "offload_optimizer": {"device": "cpu"})";
  const RunSetup setup = setup_of(open);
  const MemoryEstimate two(setup.config, setup.model, at::kCUDA, {.nodes = 2, .ranks_per_node = 4});
  const int64_t least = parallel::host_bytes(two.states_of(two.scenario(), 0));
  REQUIRE(least < two.need(two.scenario()).host);
  CHECK(is(choose(open, kTwoHostsOfFour, {.device = kMuch.device, .host = least}), 2, 4));
  CHECK(is(choose(open, kTwoHostsOfFour, {.device = kMuch.device, .host = least - 1}), 1, 8));
}

TEST_CASE("on CPUs, all memory of a rank is host memory") {
  const RunSetup setup = setup_of(R"("stage": 3, "zero_hpz_partition_size": "auto")");
  const MemoryEstimate two(setup.config, setup.model, at::kCPU, {.nodes = 2, .ranks_per_node = 4});
  const int64_t device = two.need(two.scenario()).device;
  const int64_t least = device + parallel::host_bytes(two.states_of(two.scenario(), 0));
  REQUIRE(device > 0);
  CHECK(is(choose_layout(setup, at::kCPU, kTwoHostsOfFour, {.device = 0, .host = least}), 2, 4));
  const LayoutChoice one = choose_layout(setup, at::kCPU, kTwoHostsOfFour, {.device = kMuch.device, .host = least - 1});
  CHECK(is(one, 1, 8));
  CHECK_THAT(one.line, Contains("MiB of host memory per rank (available: "));
}

TEST_CASE("refuses a group size that does not divide the ranks") {
  CHECK_THROWS_MATCHES(
      choose(R"("stage": 3, "mics_shard_size": 3)", kTwoHostsOfFour), UserError,
      Message("ds.json: zero_optimization.mics_shard_size is 3, which does not divide the run's 8 ranks; use a divisor "
              "or \"auto\""));
  CHECK_THROWS_AS(choose(R"("stage": 3, "zero_hpz_partition_size": 16)", kTwoHostsOfFour), UserError);
}

TEST_CASE("shard groups chosen automatically must fit into memory") {
  const std::string open = R"("stage": 3, "zero_hpz_partition_size": "auto")";
  const RunSetup setup = setup_of(open);
  const MemoryEstimate one(setup.config, setup.model, at::kCUDA, {.nodes = 1, .ranks_per_node = 8});
  const MemoryEstimate two(setup.config, setup.model, at::kCUDA, {.nodes = 2, .ranks_per_node = 4});
  const int64_t least = two.need(two.scenario()).device;
  REQUIRE(one.need(one.scenario()).device < least);
  CHECK(is(choose(open, kTwoHostsOfFour, {.device = least, .host = kMuch.host}), 2, 4));
  const LayoutChoice tight = choose(open, kTwoHostsOfFour, {.device = least - 1, .host = kMuch.host});
  CHECK(is(tight, 1, 8));
  CHECK_THAT(tight.line, Contains("two levels of ZeRO: ") && Contains("of GPU memory per rank"));
  // What the file gives is taken; the run's plan refuses what does not fit.
  CHECK(is(choose(R"("stage": 3, "mics_shard_size": 4)", kTwoHostsOfFour, {.device = 1, .host = 1}), 2, 4));
}

TEST_CASE("layer inputs count as host memory if no layout fits otherwise") {
  RunSetup setup = setup_of(R"("stage": 3, "zero_hpz_partition_size": "auto")");
  setup.config.seq_length = 1 << 18;
  const auto need = [&](int nodes, Recomputation recompute) {
    const MemoryEstimate estimate(setup.config, setup.model, at::kCUDA, {.nodes = nodes, .ranks_per_node = 8 / nodes});
    MemoryScenario scenario = estimate.scenario();
    scenario.recompute = recompute;
    return estimate.need(scenario, std::nullopt, 0);
  };
  const MemoryNeed host = need(2, Recomputation::kHost);
  REQUIRE(host.device < need(1, Recomputation::kAuto).device);
  CHECK(is(choose_layout(setup, at::kCUDA, kTwoHostsOfFour, host), 2, 4));
  CHECK(is(choose_layout(setup, at::kCUDA, kTwoHostsOfFour, {.device = host.device, .host = host.host - 1}), 1, 8));
  // Only one level fits without. Predicted times decide if known.
  const MemoryNeed tight{.device = need(1, Recomputation::kAuto).device, .host = host.host};
  CHECK(is(choose_layout(setup, at::kCUDA, kTwoHostsOfFour, tight), 1, 8));
  CHECK(is(choose_layout(setup, at::kCUDA, kTwoHostsOfFour, tight, two_levels_in(0.1)), 2, 4));
  CHECK(is(choose_layout(setup, at::kCUDA, kTwoHostsOfFour, tight, two_levels_in(10)), 1, 8));
}

TEST_CASE("two levels that fit only with released gradients are chosen if their step is shorter") {
  const std::string file = R"("stage": 3, "offload_optimizer": {"device": "cpu"}, "offload_param": {"device": "cpu"})";
  RunSetup setup = setup_of(file);
  setup.config.gradient_accumulation_steps = 1;
  const auto need = [&](int nodes, bool release) {
    const MemoryEstimate estimate(setup.config, setup.model, at::kCUDA, {.nodes = nodes, .ranks_per_node = 8 / nodes});
    MemoryScenario scenario = estimate.scenario();
    scenario.release_gradients = release;
    return estimate.need(scenario, std::nullopt, 0);
  };
  const MemoryNeed one_level = need(1, false), released = need(2, true);
  const MemoryNeed limit{.device = std::max(one_level.device, released.device), .host = kMuch.host};
  REQUIRE(need(2, false).device > limit.device);
  CHECK(is(choose_layout(setup, at::kCUDA, kTwoHostsOfFour, limit, two_levels_in(0.1)), 2, 4));
  CHECK(is(choose_layout(setup, at::kCUDA, kTwoHostsOfFour, limit, two_levels_in(10)), 1, 8));
  CHECK(is(choose_layout(setup, at::kCUDA, kTwoHostsOfFour, limit), 1, 8));
}

TEST_CASE("internode bytes follow the papers' formulas") {
  constexpr int64_t kParameters = 8'000'000;
  parallel::ZeroOptions options;
  options.gradient_accumulation_steps = 4;
  const parallel::ParallelLayout one{.nodes = 1, .ranks_per_node = 8}, two{.nodes = 2, .ranks_per_node = 4};
  // bf16: 16 MB of gradients, 16 MB of parameters.
  for (const int stage : {1, 2, 3}) {
    options.stage = stage;
    CHECK(internode_bytes(options, two, 2, kParameters, kParameters) == 16'000'000);
    CHECK(internode_bytes(options, one, 1, kParameters, kParameters) == 0);
  }
  options.stage = 1;
  CHECK(internode_bytes(options, one, 2, kParameters, kParameters) == 28'000'000);
  // Sums of gradients for all ranks, which all update all parameters: gradients twice around the ring, in their type.
  options.stage = 0;
  CHECK(internode_bytes(options, one, 2, kParameters, kParameters) == 28'000'000);
  options.communication_dtype = at::kFloat;
  CHECK(internode_bytes(options, one, 2, kParameters, kParameters) == 56'000'000);
  options.communication_dtype = at::kBFloat16;
  options.stage = 2;
  CHECK(internode_bytes(options, one, 2, kParameters, kParameters) == 70'000'000);
  options.stage = 3;
  CHECK(internode_bytes(options, one, 2, kParameters, kParameters) == 168'000'000);
  // Frozen parameters are gathered, and cross no node for an update.
  CHECK(internode_bytes(options, one, 2, kParameters, kParameters / 8) == 119'000'000);
  CHECK(internode_bytes(options, two, 2, kParameters, kParameters / 8) == 2'000'000);
}

TEST_CASE("compression reduces the bytes between nodes, and the log line reports it") {
  constexpr int64_t kParameters = 8'000'000;
  parallel::ZeroOptions options;
  options.stage = 3;
  const parallel::ParallelLayout two{.nodes = 2, .ranks_per_node = 4};
  // 8 or 4 bits, and a scale of 32 for 256 or 128 values.
  options.compression.gradient_bits = 8;
  CHECK(internode_bytes(options, two, 2, kParameters, kParameters) == (8'125'000 + 16'000'000) / 2);
  options.compression.gradient_bits = 4;
  CHECK(internode_bytes(options, two, 2, kParameters, kParameters) == (4'250'000 + 16'000'000) / 2);
  options.compression.weights = true;
  CHECK(internode_bytes(options, two, 2, kParameters, kParameters) == (4'250'000 + 8'125'000) / 2);
  const std::string both = R"("stage": 3, "zero_quantized_gradients": true, "zero_quantized_weights": true)";
  const LayoutChoice choice = choose(both + R"(, "mics_shard_size": 4)", kTwoHostsOfFour);
  CHECK_THAT(choice.line, Contains("MB (8-bit gradients and 8-bit parameters) per group per step"));
  CHECK(choice.warning.empty());
}

TEST_CASE("reports compression without shard groups") {
  const std::string gradients = R"("stage": 3, "zero_quantized_gradients": true)";
  RankPlacement near = kTwoHostsOfFour;
  near.one_nvlink_domain = true;
  const LayoutChoice hosts = choose(gradients, near);
  CHECK_THAT(hosts.warning,
             Contains("ds.json: zero_optimization.zero_quantized_gradients has no effect with one shard group") &&
                 Contains("\"zero_hpz_partition_size\": \"auto\""));
  const LayoutChoice host = choose(gradients + R"(, "zero_quantized_weights": true)", {.world_size = 8, .per_host = 8});
  CHECK_THAT(host.warning, Contains("zero_quantized_gradients and zero_quantized_weights have no effect") &&
                               EndsWith("groups is compressed."));
  CHECK(choose(R"("stage": 3)", kTwoHostsOfFour).warning.empty());
  // Where nodes would not be taken either, the reason is named.
  const std::string weights = R"("stage": 3, "zero_quantized_weights": true)";
  const auto slow_nodes = [](const parallel::ParallelLayout& layout) {
    return std::optional(PredictedStep{.seconds = layout.nodes == 1 ? 0.2 : 0.3});
  };
  for (const RankPlacement& ranks : {kTwoHostsOfFour, kTwoHostsOfOne}) {
    for (const char* key : {"", R"(, "zero_hpz_partition_size": "auto")"}) {
      CHECK_THAT(choose(weights + key, ranks, kMuch, slow_nodes).warning,
                 Contains("zero_quantized_weights has no effect") && Contains("300 ms instead of 200 ms"));
    }
  }
  CHECK_THAT(choose(weights, kTwoHostsOfFour, {.device = 1, .host = kMuch.host}).warning,
             Contains("shard groups need") && Contains("of GPU memory per rank"));
  CHECK_THAT(choose(weights, placement_of({0, 0, 0, 1})).warning,
             Contains("hosts cannot be shard groups: hosts have 1 to 3 ranks; "));
  // Who has asked for one level is not told to ask for nodes.
  CHECK_THAT(choose(gradients + R"(, "zero_hpz_partition_size": 1)", kTwoHostsOfFour).warning,
             Contains("zero_quantized_gradients has no effect") && !Contains("auto"));
}

TEST_CASE("all ranks use the layout chosen by rank 0") {
  const RunSetup two = setup_of(R"("stage": 2, "mics_shard_size": 2)"),
                 four = setup_of(R"("stage": 2, "mics_shard_size": 4)");
  std::atomic<int> equal = 0;
  const std::vector<std::string> errors = ThreadGroup(2).run([&](ProcessGroup& group) {
    const RunSetup& setup = group.rank() == 0 ? two : four;
    equal += is(choose_layout_of_rank_0(group, setup, at::kCPU, kTwoHostsOfFour, kMuch, {}), 4, 2) ? 1 : 0;
  });
  CHECK(errors == std::vector<std::string>(2));
  CHECK(equal == 2);
}

TEST_CASE("an error on all ranks does not mention a rank") {
  const RunSetup uneven = setup_of(R"("stage": 2, "mics_shard_size": 3)");
  const std::vector<std::string> errors = ThreadGroup(2).run(
      [&](ProcessGroup& group) { choose_layout_of_rank_0(group, uneven, at::kCPU, kTwoHostsOfFour, kMuch, {}); });
  for (const std::string& error : errors) CHECK_THAT(error, Contains("mics_shard_size is 3") && !Contains("rank 0"));
}

}  // namespace
}  // namespace mpzero
