#include "app/flags/options.hpp"
#include "app/plan/estimate/plan_beside_run.hpp"
#include "app/plan/estimate/predicted_step.hpp"
#include "tests/app/plan/command/plan_of.hpp"
#include "tests/catch.hpp"

using namespace mpzero;
using namespace mpzero::plan;
using Catch::Contains;

TEST_CASE("the line compares each part and reports the largest difference") {
  const StepSplit planned{.forward = 0.1, .backward = 0.2, .optimizer = 0.05};
  const StepSplit measured{.forward = 0.11, .backward = 0.19, .optimizer = 0.05, .exposed_gradients = 0.035};
  const std::string line = beside(planned, measured, 0.1);
  CHECK_THAT(line, Contains("step 350.0 ms vs. 385.0 ms (+10%; expected error: 10%)"));
  CHECK_THAT(line, Contains("forward 100.0 ms vs. 110.0 ms") && Contains("waiting for gradients 0.0 ms vs. 35.0 ms"));
  CHECK_THAT(line, Contains("the largest difference is in waiting for gradients: +35.0 ms"));
  CHECK_THAT(line, !Contains("data") && !Contains("parameters"));
}

TEST_CASE("a run is planned from its own setup, and a missing calibration is reported") {
  RunSetup setup = set_up_run(parse_command_line({"--model_config=" + kModels + "qwen3_0_6b.json", "--dry_run"}), 2,
                              DataFiles::kMayBeUnnamed);
  setup.layout = {.nodes = 1, .ranks_per_node = 2};
  const PlannedRun run = planned_run(setup, "NVIDIA H200", int64_t{139} << 30, 1, 2, 0);
  const StepSplit mean{.forward = 0.1, .backward = 0.2};
  CHECK_THAT(plan_beside_run(run, mean), Contains("Plan vs. measured: step"));
  const std::string bf16 = plan_beside_run(run, mean);
  CHECK(plan_beside_run(run, mean, /*clipped=*/true) != bf16);  // AdamW on the host waits for the gradient norm
  setup.config.fp8_options.emplace();
  CHECK_THAT(plan_beside_run(run, mean), Contains("Plan vs. measured: step"));
  CHECK(plan_beside_run(run, mean) != bf16);
  CHECK_THAT(plan_beside_run(planned_run(setup, "NVIDIA T4", int64_t{139} << 30, 1, 2, 0), mean),
             Contains("planning failed") && Contains("NVIDIA T4"));
}

// bench/RESULTS.md, "Packed documents": 218.7 ms of 2 x 8192 tokens in full sequences, 149.0 ms with 14% of the
// attention.
TEST_CASE("packed documents are planned with their attention") {
  RunSetup setup = set_up_run(parse_command_line({"--model_config=" + kModels + "qwen3_0_6b.json", "--dry_run",
                                                  "--seq_length=8192", "--train_micro_batch_size_per_gpu=2"}),
                              1, DataFiles::kMayBeUnnamed);
  setup.config.zero.offload_optimizer = false;
  const PlannedRun run = planned_run(setup, "NVIDIA H200", int64_t{139} << 30, 1, 1, 0);
  CHECK(plan_of(run, setup.layout).step.seconds == Approx(0.2187).epsilon(0.1));
  setup.attention_share = 0.14;
  CHECK(plan_of(run, setup.layout).step.seconds == Approx(0.1490).epsilon(0.1));
  setup.attention_share = 1e-9;
  CHECK(plan_of(run, setup.layout).step.seconds > 0.1);
}

TEST_CASE("a run is planned with its verified network, regardless of its flag, and the line reports it") {
  RunSetup setup = set_up_run(parse_command_line({"--model_config=" + kModels + "qwen3_0_6b.json", "--dry_run"}), 8,
                              DataFiles::kMayBeUnnamed);
  setup.layout = {.nodes = 1, .ranks_per_node = 8};
  const StepSplit mean{.forward = 0.1, .backward = 0.2};
  const auto run_over = [&](const std::string& network) {
    return planned_run(setup, "NVIDIA H200", int64_t{139} << 30, 2, 4, 0, network);
  };
  const auto step = [&](const std::string& network) { return plan_of(run_over(network), setup.layout).step.seconds; };
  const auto line = [&](const std::string& network) { return plan_beside_run(run_over(network), mean); };
  setup.config.network = "efa";
  const double over_efa = step("");
  CHECK_THAT(line(""), Contains("expected error: ") && Contains("%, with EFA between hosts)"));
  CHECK(step("socket") > over_efa);
  CHECK_THAT(line("socket"), Contains("%, with TCP between hosts, as used by NCCL)"));
  setup.config.network = "socket";
  CHECK(step("efa") == Approx(over_efa));
  CHECK_THAT(line("efa"), Contains("%, with EFA between hosts, as used by NCCL)"));
}

TEST_CASE("a run on a processor without a calibration is not compared with a plan") {
  RunSetup setup = set_up_run(parse_command_line({"--model_config=" + kModels + "qwen3_tiny.json", "--dry_run",
                                                  "--device=cpu", "--seq_length=128"}),
                              2, DataFiles::kMayBeUnnamed);
  setup.layout = {.nodes = 1, .ranks_per_node = 2};
  const PlannedRun run{.setup = setup, .machine = machine_of_cpu_run("A CPU of 1971", 4, 1, 2, "auto")};
  const StepSplit mean{.forward = 0.1, .backward = 0.2};
  CHECK(plan_beside_run(run, mean).empty());
}
