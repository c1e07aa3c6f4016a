#include "app/config/zero_options.hpp"
#include "tests/app/resolved_run.hpp"
#include "tests/catch.hpp"
#include "tests/model/small_configs.hpp"

namespace mpzero {
namespace {

using Catch::Contains;

// The default of runs without a file.
const std::string kOffload = R"("offload_optimizer": {"device": "cpu"})";

TEST_CASE("hosts with the same number of consecutive ranks are described by that number") {
  CHECK(placement_of({0}).per_host == 1);
  CHECK(placement_of({4, 4, 4, 4}).per_host == 4);
  CHECK(placement_of({4, 4, 4, 4}).hosts() == 1);
  const RankPlacement two = placement_of({0, 0, 2, 2});
  CHECK(two.per_host == 2);
  CHECK(two.hosts() == 2);
  CHECK(two.world_size == 4);
  CHECK(describe_unevenness(two).empty());
}

TEST_CASE("uneven hosts are distinguished from round-robin placement") {
  const RankPlacement uneven = placement_of({0, 0, 0, 3});
  CHECK_FALSE(uneven.per_host);
  CHECK(uneven.hosts() == 2);
  CHECK(describe_unevenness(uneven) == "hosts have 1 to 3 ranks; start the same number on each host");
  // The first host has the fewest.
  CHECK_FALSE(placement_of({0, 1, 1, 1}).per_host);
  for (const std::vector<int>& around : {std::vector<int>{0, 1, 0, 1}, {0, 0, 1, 1, 1, 1, 0, 0}}) {
    const RankPlacement ranks = placement_of(around);
    CHECK_FALSE(ranks.per_host);
    CHECK(ranks.hosts() == 2);
    CHECK_THAT(describe_unevenness(ranks), Contains("not consecutive") && Contains("--map-by slot"));
  }
}

TEST_CASE("a suggested ds_config.json changes only zero_optimization") {
  for (const std::vector<std::string>& flags : {std::vector<std::string>{},
                                                {"--max_steps=50"},
                                                {"--bf16=false", "--warmup_steps=7"},
                                                {"--lr_scheduler_type=linear", "--learning_rate=0.01"}}) {
    const RunConfig without = run("", flags).config;
    const std::string file = minimal_ds_config(new_file_keys(without), {R"("stage": 2)", kOffload});
    CHECK(settings_record(run(file, flags).config) == settings_record(without));
    CHECK(new_file_keys(run(file, flags).config).empty());
  }
}

TEST_CASE("compression follows the file, with the flag's bits and the run's seed") {
  const auto compression = [](const std::string& zero, std::vector<std::string> flags = {}) {
    flags.emplace_back("--seed=7");
    const std::string file = R"({"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 2)" + zero + "}}";
    return zero_options(run(file, std::move(flags)).config, at::kCPU).compression;
  };
  const parallel::Compression none = compression("");
  CHECK((none.gradient_bits == 0 && !none.weights));
  const parallel::Compression gradients = compression(R"(, "zero_quantized_gradients": true)");
  CHECK((gradients.gradient_bits == 8 && !gradients.weights && gradients.seed == 7));
  const parallel::Compression both = compression(
      R"(, "zero_quantized_gradients": true, "zero_quantized_weights": true)", {"--quantized_gradient_bits=4"});
  CHECK((both.gradient_bits == 4 && both.weights && both.seed == 7));
}

TEST_CASE("shard groups contain ranks of one host or of several") {
  const RankPlacement even{.world_size = 8, .per_host = 4};
  CHECK_FALSE(has_nodes_across_hosts({.nodes = 2, .ranks_per_node = 4}, even));
  CHECK_FALSE(has_nodes_across_hosts({.nodes = 4, .ranks_per_node = 2}, even));
  CHECK_FALSE(has_nodes_across_hosts({.nodes = 1, .ranks_per_node = 8}, even));
  CHECK(has_nodes_across_hosts({.nodes = 2, .ranks_per_node = 6}, {.world_size = 12, .per_host = 4}));
  CHECK(has_nodes_across_hosts({.nodes = 2, .ranks_per_node = 2}, placement_of({0, 1, 0, 1})));
  CHECK_FALSE(has_nodes_across_hosts({.nodes = 4, .ranks_per_node = 1}, placement_of({0, 1, 0, 1})));
}

TEST_CASE("warns if names in no_decay match only frozen parameters") {
  model::ModelConfig model = model::small_qwen3();
  const auto warnings_of = [&](const std::string& names) {
    std::vector<std::string> warnings;
    check_no_decay(run("", {"--no_decay=" + names}).config, model, warnings);
    return warnings;
  };
  CHECK(warnings_of("norm").empty());
  model.lora = LoraConfig{.r = 2, .alpha = 2, .targets = {"q_proj"}};
  CHECK(warnings_of("lora_A").empty());
  REQUIRE(warnings_of("norm,lora_A").size() == 1);
  CHECK_THAT(warnings_of("norm,lora_A").front(), Contains("--no_decay norm") && Contains("frozen"));
}

}  // namespace
}  // namespace mpzero
