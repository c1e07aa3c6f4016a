#include "app/flags/options.hpp"
#include "app/plan/estimate/predicted_step.hpp"
#include "tests/app/plan/command/plan_of.hpp"
#include "tests/catch.hpp"

using namespace mpzero;
using namespace mpzero::plan;

TEST_CASE("a step is predicted for each layout, on GPUs with a calibration and enough memory") {
  const RunSetup setup = set_up_run(parse_command_line({"--model_config=" + kModels + "qwen3_0_6b.json", "--dry_run"}),
                                    8, DataFiles::kMayBeUnnamed);
  const auto predicted = [&](const char* gpu, int64_t gibibytes, const parallel::ParallelLayout& layout) {
    return predicted_step(planned_run(setup, gpu, gibibytes << 30, 2, 4, 0), layout);
  };
  const std::optional<PredictedStep> two = predicted("NVIDIA H200", 139, {.nodes = 2, .ranks_per_node = 4});
  const std::optional<PredictedStep> one = predicted("NVIDIA H200", 139, {.nodes = 1, .ranks_per_node = 8});
  REQUIRE(two);
  REQUIRE(one);
  // Half of the gradients and parameters cross between the hosts instead of seven eighths.
  CHECK(two->seconds < one->seconds);
  CHECK(two->error > 0);
  CHECK_FALSE(predicted("NVIDIA H200", 4, {.nodes = 2, .ranks_per_node = 4}));
  CHECK_FALSE(predicted("NVIDIA T4", 139, {.nodes = 2, .ranks_per_node = 4}));
}

TEST_CASE("released gradients are predicted from the run's host memory") {
  RunSetup setup = set_up_run(parse_command_line({"--model_config=" + kModels + "llama_3_8b.json", "--dry_run",
                                                  "--max_position_embeddings=163840", "--seq_length=163840",
                                                  "--train_micro_batch_size_per_gpu=1"}),
                              1, DataFiles::kMayBeUnnamed);
  setup.config.zero.stage = 2;
  setup.config.zero.offload_optimizer = true;
  setup.layout = {.nodes = 1, .ranks_per_node = 1};
  const auto run_on = [&](const char* gpu, int64_t gibibytes) {
    return planned_run(setup, gpu, int64_t{79} << 30, 1, 1, gibibytes << 30);
  };
  const auto faster = [&](int64_t gibibytes) {
    const PlannedRun run = run_on("NVIDIA H100 80GB HBM3", gibibytes);
    const std::optional<bool> release = predicted_release(run);
    REQUIRE(release);
    const PlanEstimate plan = plan_of(run, setup.layout);
    CHECK(plan.memory.of_host == gibibytes << 30);
    CHECK(plan.memory.fits);
    CHECK((plan.memory.states.host_gradients > 0) == *release);
    CHECK((plan.memory.host_activations > 0) != *release);
    return *release;
  };
  // With attention outputs on the host, the step is shorter, but needs more host memory.
  CHECK_FALSE(faster(256));
  CHECK(faster(118));
  setup.config.zero.release_gradients = true;
  CHECK_FALSE(predicted_release(run_on("NVIDIA H100 80GB HBM3", 118)));
  setup.config.zero.release_gradients.reset();
  setup.config.gradient_accumulation_steps = 2;
  CHECK_FALSE(predicted_release(run_on("NVIDIA H100 80GB HBM3", 118)));
  setup.config.gradient_accumulation_steps = 1;
  CHECK_FALSE(predicted_release(run_on("NVIDIA T4", 118)));
}

TEST_CASE("warns if the verified network is not the one for which the layout was chosen") {
  RunSetup setup = set_up_run(parse_command_line({"--model_config=" + kModels + "qwen3_0_6b.json", "--dry_run"}), 8,
                              DataFiles::kMayBeUnnamed);
  const auto warning = [&](const std::string& network, const char* gpu = "NVIDIA H200") {
    return assumed_network_warning(planned_run(setup, gpu, int64_t{139} << 30, 2, 4, 0), network);
  };
  // Without a known instance type, a prediction assumes TCP.
  CHECK(warning("socket").empty());
  CHECK_THAT(warning("efa"), Catch::Contains("for TCP") && Catch::Contains("--network efa"));
  CHECK(warning("efa", "NVIDIA Unknown").empty());
  setup.config.network = "efa";
  CHECK(warning("efa").empty());
  CHECK_THAT(warning("socket"), Catch::Contains("for EFA") && Catch::Contains("--network socket"));
  setup.config.network = "auto";
  setup.config.zero.ranks_per_node = 4;
  CHECK(warning("efa").empty());
}
