#include "app/plan/command/plan_estimate.hpp"
#include "tests/app/plan/command/plan_of.hpp"
#include "tests/catch.hpp"

using namespace mpzero::plan;
using Catch::Contains;

namespace {

std::vector<std::string> llama(const std::string& more) {
  return {"--model_config=" + kModels + "llama_3_8b.json", "--instance=p5e.48xlarge", "--seq_length=4096", more};
}

double seconds(const nlohmann::json& plan) { return plan["step"]["seconds"].get<double>(); }

}  // namespace

TEST_CASE("parts of a step's time add up to it") {
  const nlohmann::json plan = json_of(llama("--nodes=2"));
  const nlohmann::json& step = plan["step"];
  double sum = 0;
  for (const char* part : {"forward_seconds", "backward_seconds", "optimizer_seconds", "exposed_parameters_seconds",
                           "exposed_gradients_seconds", "data_seconds"}) {
    sum += step[part].get<double>();
  }
  CHECK(sum == Approx(seconds(plan)).epsilon(0.01));
  const nlohmann::json& gpu = plan["memory"]["gpu_bytes"];
  int64_t bytes = 0;
  for (const char* part :
       {"parameters", "gradients", "optimizer_states", "units_in_flight", "activations", "workspace", "context"}) {
    bytes += gpu[part].get<int64_t>();
  }
  CHECK(bytes == gpu["total"].get<int64_t>());
}

TEST_CASE("more sequences take longer, and less for each") {
  const double one = seconds(json_of(llama("--train_micro_batch_size_per_gpu=1")));
  const double four = seconds(json_of(llama("--gradient_accumulation_steps=4")));
  CHECK(four > 2 * one);
  CHECK(four < 4.01 * one);
}

TEST_CASE("slower networks and ranks take longer") {
  const double before = seconds(json_of(llama("--nodes=4")));
  std::vector<std::string> slow = llama("--nodes=4");
  slow.emplace_back("--network_factor=3");
  CHECK(seconds(json_of(slow)) >= before);
  slow.emplace_back("--straggler_factor=1.2");
  CHECK(seconds(json_of(slow)) > 1.1 * before);
  std::vector<std::string> tcp = llama("--nodes=4");
  tcp.emplace_back("--network=socket");
  CHECK(seconds(json_of(tcp)) > before);
}

TEST_CASE("a run that does not fit is told what would") {
  const PlanOutput output = output_of({"--model_config=" + kModels + "llama_3_8b.json", "--gpu=H200",
                                       "--seq_length=8192", "--train_micro_batch_size_per_gpu=64", "--recompute=none"});
  CHECK(output.exit_code == 2);
  CHECK_THAT(output.text, Contains("does not fit") && Contains("what would fit"));
}
