#include "app/flags/options.hpp"
#include "app/plan/estimate/predicted_step.hpp"
#include "tests/app/plan/command/plan_of.hpp"
#include "tests/catch.hpp"

using namespace mpzero;
using namespace mpzero::plan;

TEST_CASE("a step is predicted for each layout, on GPUs with a calibration and enough memory") {
  const RunSetup setup = set_up_run(parse_command_line({"--model_config=" + kModels + "qwen3_0_6b.json", "--dry_run"}),
                                    8, DataFiles::kMayBeUnnamed);
  PlannedRun run{.setup = setup, .gpu = "NVIDIA H200", .gpu_bytes = int64_t{139} << 30, .hosts = 2, .per_host = 4};
  const std::optional<PredictedStep> two = predicted_step(run, {.nodes = 2, .ranks_per_node = 4});
  const std::optional<PredictedStep> one = predicted_step(run, {.nodes = 1, .ranks_per_node = 8});
  REQUIRE(two);
  REQUIRE(one);
  // Half of the gradients and parameters cross between the hosts instead of seven eighths.
  CHECK(two->seconds < one->seconds);
  CHECK(two->error > 0);
  run.gpu_bytes = int64_t{4} << 30;
  CHECK_FALSE(predicted_step(run, {.nodes = 2, .ranks_per_node = 4}));
  const PlannedRun unknown{
      .setup = setup, .gpu = "NVIDIA T4", .gpu_bytes = int64_t{139} << 30, .hosts = 2, .per_host = 4};
  CHECK_FALSE(predicted_step(unknown, {.nodes = 2, .ranks_per_node = 4}));
}

TEST_CASE("released gradients are predicted from the run's host memory") {
  RunSetup setup = set_up_run(parse_command_line({"--model_config=" + kModels + "llama_3_8b.json", "--dry_run",
                                                  "--max_position_embeddings=163840", "--seq_length=163840",
                                                  "--train_micro_batch_size_per_gpu=1"}),
                              1, DataFiles::kMayBeUnnamed);
  setup.config.zero.stage = 2;
  setup.config.zero.offload_optimizer = true;
  setup.layout = {.nodes = 1, .ranks_per_node = 1};
  PlannedRun run{
      .setup = setup, .gpu = "NVIDIA H100 80GB HBM3", .gpu_bytes = int64_t{79} << 30, .hosts = 1, .per_host = 1};
  const auto faster = [&](int64_t gibibytes) {
    run.host_bytes = gibibytes << 30;
    const std::optional<bool> release = predicted_release(run);
    REQUIRE(release);
    const PlanEstimate plan = plan_of(run, setup.layout);
    CHECK(plan.memory.of_host == run.host_bytes);
    CHECK(plan.memory.fits);
    CHECK((plan.memory.states.host_gradients > 0) == *release);
    CHECK((plan.memory.host_activations > 0) != *release);
    return *release;
  };
  // With attention outputs on the host, the step is shorter, but needs more host memory.
  CHECK_FALSE(faster(256));
  CHECK(faster(118));
  setup.config.zero.release_gradients = true;
  CHECK_FALSE(predicted_release(run));
  setup.config.zero.release_gradients.reset();
  setup.config.gradient_accumulation_steps = 2;
  CHECK_FALSE(predicted_release(run));
  setup.config.gradient_accumulation_steps = 1;
  run.gpu = "NVIDIA T4";
  CHECK_FALSE(predicted_release(run));
}

TEST_CASE("warns if the verified network is not the one for which the layout was chosen") {
  RunSetup setup = set_up_run(parse_command_line({"--model_config=" + kModels + "qwen3_0_6b.json", "--dry_run"}), 8,
                              DataFiles::kMayBeUnnamed);
  PlannedRun run{.setup = setup, .gpu = "NVIDIA H200", .gpu_bytes = int64_t{139} << 30, .hosts = 2, .per_host = 4};
  // Without a known instance type, a prediction assumes TCP.
  CHECK(assumed_network_warning(run).empty());
  run.network = "socket";
  CHECK(assumed_network_warning(run).empty());
  run.network = "efa";
  CHECK_THAT(assumed_network_warning(run), Catch::Contains("TCP") && Catch::Contains("--network efa"));
  setup.config.network = "efa";
  CHECK(assumed_network_warning(run).empty());
  setup.config.network = "auto";
  run.gpu = "NVIDIA Unknown";
  CHECK(assumed_network_warning(run).empty());
  run.gpu = "NVIDIA H200";
  setup.config.zero.ranks_per_node = 4;
  CHECK(assumed_network_warning(run).empty());
}
