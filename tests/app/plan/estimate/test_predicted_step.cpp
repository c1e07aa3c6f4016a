#include "app/flags/options.hpp"
#include "app/plan/estimate/predicted_step.hpp"
#include "tests/app/plan/command/plan_of.hpp"
#include "tests/catch.hpp"

using namespace mpzero;
using namespace mpzero::plan;

TEST_CASE("a step is predicted by layout, on GPUs that have a calibration and room for the run") {
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
