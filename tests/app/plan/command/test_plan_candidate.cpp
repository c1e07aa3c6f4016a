#include "app/plan/command/plan_candidate.hpp"
#include "tests/app/plan/command/comparison_of.hpp"
#include "tests/catch.hpp"

using namespace mpzero::plan;

TEST_CASE("the best candidate's ds_config.json is valid and has the same plan") {
  const nlohmann::json found = comparison();
  const TextFile file(found["best_ds_config"].dump());
  const nlohmann::json plan = json_of({kFlags[0], kFlags[1], kFlags[2], kFlags[3], file.ds_config()});
  CHECK(plan["step"]["seconds"].get<double>() == Approx(found["ranked"][0]["step_seconds"].get<double>()));
  CHECK(plan["run"]["zero_stage"] == found["ranked"][0]["zero_stage"]);
}

TEST_CASE("the best candidate's ds_config.json trains like the requested run") {
  std::vector<std::string> flags = kFlags;
  flags.insert(flags.end(), {"--gradient_accumulation_steps=4", "--learning_rate=3e-4", "--grad_clip=0.7",
                             "--warmup_steps=20", "--max_steps=500", "--compare"});
  const nlohmann::json found = json_of(flags);
  const nlohmann::json& config = found["best_ds_config"];
  CHECK(config["optimizer"]["type"] == "AdamW");
  CHECK(config["optimizer"]["params"]["lr"] == 3e-4);
  CHECK(config["optimizer"]["params"]["betas"] == nlohmann::json({0.9, 0.95}));
  CHECK(config["optimizer"]["params"]["weight_decay"] == 0.1);
  CHECK(config["gradient_clipping"] == 0.7);
  CHECK(config["scheduler"]["type"] == "WarmupCosineLR");
  CHECK(config["scheduler"]["params"]["warmup_num_steps"] == 20);
  CHECK(config["scheduler"]["params"]["total_num_steps"] == 500);
  CHECK(config["scheduler"]["params"]["cos_min_ratio"] == 0);
  CHECK(config["scheduler"]["params"]["warmup_type"] == "log");
  std::vector<std::string> of_tokens = flags;
  std::erase(of_tokens, "--max_steps=500");
  of_tokens.emplace_back("--tokens=20e9");
  CHECK(json_of(of_tokens)["best_ds_config"]["scheduler"]["params"]["total_num_steps"] == "auto");
  const auto steps = config["gradient_accumulation_steps"].get<int>();
  const nlohmann::json leave_out =
      steps == 4 ? nlohmann::json::array() : nlohmann::json({"--gradient_accumulation_steps 4"});
  CHECK(found["best_leave_out"] == leave_out);
}

TEST_CASE("the best candidate's ds_config.json lets --recompute place the layer inputs") {
  const TextFile file(R"({"train_batch_size": 32, "bf16": {"enabled": true},
      "activation_checkpointing": {"cpu_checkpointing": true, "partition_activations": false}})");
  std::vector<std::string> flags = kFlags;
  flags.insert(flags.end(), {file.ds_config(), "--compare"});
  const nlohmann::json found = json_of(flags);
  CHECK(found["best_ds_config"]["activation_checkpointing"] == nlohmann::json({{"partition_activations", false}}));
}

TEST_CASE("the best candidate's ds_config.json has the planned FP8 settings") {
  std::vector<std::string> flags = kFlags;
  flags.emplace_back("--compare");
  CHECK_FALSE(json_of(flags)["best_ds_config"].contains("fp8"));
  flags.emplace_back("--fp8=rowwise");
  CHECK(json_of(flags)["best_ds_config"]["fp8"] == nlohmann::json({{"enabled", true}, {"recipe", "rowwise"}}));
}
