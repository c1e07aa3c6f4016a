#include "app/plan/command/plan_command.hpp"
#include "tests/app/error_from.hpp"
#include "tests/app/plan/command/plan_of.hpp"
#include "tests/catch.hpp"

using namespace mpzero;
using namespace mpzero::plan;
using Catch::Contains;

TEST_CASE("a plan needs no data, no GPU and no MPI") {
  const PlanOutput output = output_of({"--model_config=" + kModels + "qwen3_0_6b.json", "--gpu=H200"});
  CHECK(output.exit_code == 0);
  CHECK_THAT(output.text, Contains("tokens/s/GPU") && Contains("Bottleneck") && Contains("Checkpoint"));
}

TEST_CASE("help is no error") { CHECK_THAT(plan_output({"--help"}).text, Contains("mpzero plan")); }

TEST_CASE("flags that a plan cannot use are one sentence") {
  const auto error = [](std::vector<std::string> flags) { return error_from([&] { output_of(flags); }); };
  CHECK_THAT(error({"--gpu=H200", "--world_size=4"}), Contains("--world_size 4"));
  CHECK_THAT(error({"--gpu=H200", "--device=cpu"}), Contains("--device cpu"));
  CHECK_THAT(error({"--instance=p5.48xlarge", "--nproc_per_node=2"}), Contains("--nproc_per_node 2"));
  CHECK_THAT(error({"--gpu=H200", "--sequence_length=4"}), Contains("--seq_length"));
  CHECK_THAT(error({"--gpu=H200", "--model_config=nowhere.json"}), Contains("nowhere.json"));
}
