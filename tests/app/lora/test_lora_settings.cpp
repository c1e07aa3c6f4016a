#include "app/lora/lora_settings.hpp"
#include "tests/app/resolved_run.hpp"
#include "tests/catch.hpp"
#include "tests/model/small_configs.hpp"

namespace mpzero {
namespace {

using Catch::Contains;
using Names = std::vector<std::string>;

const Names kAll{"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"};

model::ModelConfig adapted(const std::string& lora, const Names& flags,
                           model::ModelConfig model = model::small_qwen3()) {
  const std::string file = R"({"train_micro_batch_size_per_gpu": 1)" + lora + "}";
  set_up_lora(run(file, flags).config, "the settings", "their folder", model);
  return model;
}

std::string refusal_of(const Names& flags, const std::string& lora = "",
                       const model::ModelConfig& model = model::small_qwen3()) {
  return error_from([&] { adapted(lora, flags, model); });
}

}  // namespace

TEST_CASE("adapters are configured by file or flags, with PEFT's names") {
  CHECK(!adapted("", {}).lora);
  CHECK(adapted("", {"--lora_r=8"}).lora == LoraConfig{.r = 8, .alpha = 8, .targets = kAll});
  CHECK(adapted("", {"--lora_r=8", "--lora_target_modules=all-linear"}).lora->targets == kAll);
  CHECK(adapted(R"(, "lora": {"r": 8, "targets": "all-linear"})", {}).lora->targets == kAll);
  const LoraConfig expected{.r = 16, .alpha = 32, .targets = {"q_proj", "v_proj"}, .rslora = true, .dropout = 0.05};
  CHECK(adapted("", {"--lora_r=16", "--lora_alpha=32", "--lora_target_modules=v_proj,q_proj", "--use_rslora",
                     "--lora_dropout=0.05"})
            .lora == expected);
  CHECK(adapted(R"(, "lora": {"r": 16, "alpha": 32, "targets": ["v_proj", "q_proj"], "dropout": 0.05, "rslora": true})",
                {})
            .lora == expected);
}

TEST_CASE("fused weights can be targets") {
  CHECK(adapted("", {"--lora_r=8"}, model::small_phi3()).lora->targets ==
        Names{"qkv_proj", "o_proj", "gate_up_proj", "down_proj"});
  CHECK_THAT(refusal_of({"--lora_r=8", "--lora_target_modules=q_proj"}, "", model::small_phi3()),
             Contains("\"q_proj\"") && Contains("qkv_proj"));
}

TEST_CASE("features that adapters do not support are refused by name") {
  CHECK_THAT(refusal_of({"--lora_alpha=8"}), Contains("--lora_r"));
  CHECK_THAT(refusal_of({"--lora_r=8", "--freeze_parameters=mlp"}), Contains("--freeze_parameters mlp"));
  CHECK_THAT(refusal_of({"--lora_r=8", "--checkpoint_format=deepspeed"}), Contains("deepspeed"));
  CHECK_THAT(refusal_of({"--lora_r=8", "--lora_target_modules=lm_head"}),
             Contains("\"lm_head\"") && Contains("q_proj"));
  const auto t5 = model::ModelConfig::from_file(MPZERO_SOURCE_DIR "/tests/model/fixtures/t5.json");
  CHECK_THAT(refusal_of({"--lora_r=8"}, "", t5), Contains("\"t5\""));
  CHECK_THAT(refusal_of({"--load_in_4bit"}), Contains("--lora_r"));
  CHECK_THAT(refusal_of({"--lora_r=8", "--load_in_4bit", "--load_in_8bit"}), Contains("--load_in_8bit"));
  CHECK_THAT(refusal_of({}, R"(, "lora": {"r": 8, "use_dora": true})"), Contains("lora.use_dora"));
  CHECK_THAT(refusal_of({}, R"(, "lora": {"r": 8, "load_in_4bit": true, "bnb_4bit_quant_type": "fp4"})"),
             Contains("lora.bnb_4bit_quant_type"));
  CHECK_THAT(refusal_of({}, R"(, "lora": {"r": 8, "modules_to_save": ["lm_head"]})"), Contains("lora.modules_to_save"));
}

TEST_CASE("initial adapters determine the settings, and different settings are refused") {
  model::ModelConfig model = model::small_qwen3();
  model.lora = LoraConfig{.r = 4, .alpha = 8, .targets = {"q_proj"}};
  CHECK(adapted("", {}, model).lora == model.lora);
  CHECK(adapted("", {"--lora_r=4"}, model).lora == model.lora);
  CHECK_THAT(refusal_of({"--lora_r=8"}, "", model), Contains("r 4") && Contains("r 8") && Contains("their folder"));
  CHECK(adapted("", {"--lora_dropout=0.1"}, model).lora->dropout == 0.1);
  model.lora->rslora = true;
  CHECK(adapted("", {"--lora_r=4"}, model).lora == model.lora);
  CHECK_THAT(refusal_of({"--use_rslora=false"}, "", model), Contains("rslora"));
  CHECK_THAT(refusal_of({}, R"(, "lora": {"rslora": false})", model), Contains("rslora"));
  CHECK_THAT(refusal_of({"--lora_target_modules=v_proj"}, "", model), Contains("q_proj") && Contains("v_proj"));
}

TEST_CASE("a checkpoint's config.json contains the adapters, and the base's does not") {
  model::ModelConfig model = adapted("", {"--lora_r=3", "--use_rslora", "--lora_dropout=0.1"});
  CHECK(model::ModelConfig::from_json(model.to_json(), "x") == model);
  CHECK(model::ModelConfig::from_json(model.base().to_json(), "x") == model::small_qwen3());
}

}  // namespace mpzero
