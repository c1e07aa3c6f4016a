#include <limits>

#include "app/memory/layout_choice.hpp"
#include "app/memory/memory_estimate.hpp"
#include "base/error.hpp"
#include "tests/app/resolved_run.hpp"
#include "tests/catch.hpp"

namespace mpzero {
namespace {

using Catch::Contains;
using Catch::Matchers::Message;

constexpr MemoryNeed kMuch{.device = int64_t{1} << 40, .host = int64_t{1} << 40};
constexpr RankPlacement kTwoHostsOfFour{.world_size = 8, .per_host = 4}, kTwoHostsOfOne{.world_size = 2, .per_host = 1};

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

LayoutChoice choose(const std::string& zero, const RankPlacement& ranks, const MemoryNeed& limit = kMuch) {
  return choose_layout(setup_of(zero), at::kCUDA, ranks, limit);
}

bool is(const LayoutChoice& choice, int nodes, int ranks_per_node) {
  return choice.layout.nodes == nodes && choice.layout.ranks_per_node == ranks_per_node;
}

TEST_CASE("a file that says nothing gets a node a host, but one level on hosts of several GPUs") {
  CHECK(is(choose(R"("stage": 3)", kTwoHostsOfOne), 2, 1));
  const RunSetup setup = setup_of(R"("stage": 1)");
  CHECK(is(choose_layout(setup, at::kCPU, kTwoHostsOfFour, kMuch), 2, 4));
  const LayoutChoice gpus = choose_layout(setup, at::kCUDA, kTwoHostsOfFour, kMuch);
  CHECK(is(gpus, 1, 8));
  CHECK_THAT(gpus.line, Contains("\"zero_hpz_partition_size\": \"auto\" in zero_optimization makes it"));
}

TEST_CASE("the file says what a node is") {
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

TEST_CASE("one level where there is one host, hosts are uneven, or nothing is sharded") {
  const LayoutChoice one_host = choose(R"("stage": 3)", {.world_size = 8, .per_host = 8});
  CHECK(is(one_host, 1, 8));
  CHECK(one_host.line.empty());
  CHECK(is(choose(R"("stage": 3)", {.world_size = 8, .per_host = std::nullopt}), 1, 8));
  CHECK(is(choose(R"("stage": 0)", kTwoHostsOfFour), 1, 8));
  CHECK(is(choose(R"("stage": 0, "mics_shard_size": 4)", kTwoHostsOfFour), 1, 8));
}

TEST_CASE("ranks that do not fill nodes are refused") {
  CHECK_THROWS_MATCHES(choose(R"("stage": 3, "mics_shard_size": 3)", kTwoHostsOfFour), UserError,
                       Message("ds.json: zero_optimization.mics_shard_size is 3, which does not divide the "
                               "run's 8 ranks; give a divisor, or \"auto\" for a node per host"));
  CHECK_THROWS_AS(choose(R"("stage": 3, "zero_hpz_partition_size": 16)", kTwoHostsOfFour), UserError);
}

TEST_CASE("nodes that the file leaves open must fit") {
  const std::string open = R"("stage": 3, "zero_hpz_partition_size": "auto")";
  const RunSetup setup = setup_of(open);
  const MemoryEstimate one(setup.config, setup.model, at::kCUDA, {.nodes = 1, .ranks_per_node = 8});
  const MemoryEstimate two(setup.config, setup.model, at::kCUDA, {.nodes = 2, .ranks_per_node = 4});
  const int64_t least = two.need(two.scenario()).device;
  REQUIRE(one.need(one.scenario()).device < least);
  CHECK(is(choose(open, kTwoHostsOfFour, {.device = least, .host = kMuch.host}), 2, 4));
  const LayoutChoice tight = choose(open, kTwoHostsOfFour, {.device = least - 1, .host = kMuch.host});
  CHECK(is(tight, 1, 8));
  CHECK_THAT(tight.line, Contains("two levels of ZeRO would make it") && Contains("of GPU memory a rank"));
  // What the file gives is taken; the run's plan refuses what does not fit.
  CHECK(is(choose(R"("stage": 3, "mics_shard_size": 4)", kTwoHostsOfFour, {.device = 1, .host = 1}), 2, 4));
}

TEST_CASE("the bytes between nodes follow the formulas of the papers") {
  constexpr int64_t kParameters = 8'000'000;
  parallel::ZeroOptions options;
  options.gradient_accumulation_steps = 4;
  const parallel::ParallelLayout one{.nodes = 1, .ranks_per_node = 8}, two{.nodes = 2, .ranks_per_node = 4};
  // bf16: 16 MB of gradients, 16 MB of parameters.
  for (const int stage : {1, 2, 3}) {
    options.stage = stage;
    CHECK(internode_bytes(options, two, 2, kParameters) == 16'000'000);
    CHECK(internode_bytes(options, one, 1, kParameters) == 0);
  }
  options.stage = 1;
  CHECK(internode_bytes(options, one, 2, kParameters) == 28'000'000);
  options.stage = 2;
  CHECK(internode_bytes(options, one, 2, kParameters) == 70'000'000);
  options.stage = 3;
  CHECK(internode_bytes(options, one, 2, kParameters) == 168'000'000);
}

TEST_CASE("compression makes the bytes between nodes fewer, and the line says so") {
  constexpr int64_t kParameters = 8'000'000;
  parallel::ZeroOptions options;
  options.stage = 3;
  const parallel::ParallelLayout two{.nodes = 2, .ranks_per_node = 4};
  // 8 or 4 bits, and a scale of 32 for 256 or 128 values.
  options.compression.gradient_bits = 8;
  CHECK(internode_bytes(options, two, 2, kParameters) == (8'125'000 + 16'000'000) / 2);
  options.compression.gradient_bits = 4;
  CHECK(internode_bytes(options, two, 2, kParameters) == (4'250'000 + 16'000'000) / 2);
  options.compression.weights = true;
  CHECK(internode_bytes(options, two, 2, kParameters) == (4'250'000 + 8'125'000) / 2);
  const std::string both = R"("stage": 3, "zero_quantized_gradients": true, "zero_quantized_weights": true)";
  const LayoutChoice choice = choose(both + R"(, "mics_shard_size": 4)", kTwoHostsOfFour);
  CHECK_THAT(choice.line, Contains("GB (gradients in 8 bits and parameters in 8 bits) a node and step"));
  CHECK(choice.warning.empty());
}

TEST_CASE("compression without nodes is named") {
  const std::string gradients = R"("stage": 3, "zero_quantized_gradients": true)";
  const LayoutChoice hosts = choose(gradients, kTwoHostsOfFour);
  CHECK(hosts.warning ==
        "ds.json: zero_optimization.zero_quantized_gradients has no effect: all ranks are one node, and mpzero "
        "compresses between nodes only; \"zero_hpz_partition_size\": \"auto\" makes each host a node.");
  const LayoutChoice host = choose(gradients + R"(, "zero_quantized_weights": true)", {.world_size = 8, .per_host = 8});
  CHECK(host.warning ==
        "ds.json: zero_optimization.zero_quantized_gradients and zero_quantized_weights have no effect: all ranks are "
        "one node, and mpzero compresses between nodes only.");
  CHECK(choose(R"("stage": 3)", kTwoHostsOfFour).warning.empty());
  // Who has asked for one level is not told to ask for nodes.
  CHECK(choose(gradients + R"(, "zero_hpz_partition_size": 1)", kTwoHostsOfFour).warning ==
        "ds.json: zero_optimization.zero_quantized_gradients has no effect: all ranks are one node, and mpzero "
        "compresses between nodes only.");
}

}  // namespace
}  // namespace mpzero
