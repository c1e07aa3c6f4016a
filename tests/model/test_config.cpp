#include <filesystem>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>

#include "base/error.hpp"
#include "model/config.hpp"
#include "tests/catch.hpp"

namespace mpzero::model {
namespace {

using nlohmann::json;

ModelConfig preset(const std::string& name) {
  return ModelConfig::from_file(std::filesystem::path(MPZERO_SOURCE_DIR) / "configs/models" / (name + ".json"));
}

json preset_json(const std::string& name) {
  std::ifstream file(std::filesystem::path(MPZERO_SOURCE_DIR) / "configs/models" / (name + ".json"));
  return json::parse(file);
}

ModelConfig parse(const json& object) { return ModelConfig::from_json(object.dump(), "x/config.json"); }

// The error for a preset with one key changed.
std::string error(const std::string& name, const std::function<void(json&)>& change) {
  json object = preset_json(name);
  change(object);
  try {
    parse(object);
  } catch (const UserError& e) {
    return e.what();
  }
  return "";
}

bool contains(const std::string& text, const std::vector<std::string>& parts) {
  INFO(text);
  for (const std::string& part : parts) {
    UNSCOPED_INFO("in: " << text << " looked for: " << part);
    if (text.find(part) == std::string::npos) return false;
  }
  return true;
}

}  // namespace

TEST_CASE("a number that no double holds is refused with the file") {
  try {
    ModelConfig::from_json(R"({"model_type": "llama", "rms_norm_eps": 1e400})", "x/config.json");
    FAIL("was accepted");
  } catch (const UserError& e) {
    CHECK(std::string(e.what()).find("x/config.json") == 0);
  }
}

TEST_CASE("presets have the published sizes") {
  // Parameter counts: the sums of the published safetensors indices (Qwen/Qwen3-0.6B tied, meta-llama/Meta-Llama-3-8B,
  // Qwen/Qwen2.5-0.5B tied, Qwen/Qwen2.5-7B).
  CHECK(num_parameters(preset("qwen3_0_6b")) == 596'049'920);
  CHECK(num_parameters(preset("llama_3_8b")) == 8'030'261'248);
  CHECK(num_parameters(preset("llama_3_1_8b")) == 8'030'261'248);
  CHECK(num_parameters(preset("qwen2_5_0_5b")) == 494'032'768);
  CHECK(num_parameters(preset("qwen2_5_7b")) == 7'615'616'512);
  CHECK(num_parameters(preset("qwen3_tiny")) > 800'000);
  CHECK(num_parameters(preset("qwen3_tiny")) < 1'200'000);
  CHECK(preset("qwen3_0_6b").query_size() == 2048);
  CHECK(preset("llama_3_8b").head_dim == 128);
  CHECK_FALSE(preset("llama_3_8b").rope_scaling.has_value());
  CHECK(preset("llama_3_1_8b").rope_scaling == Llama3RopeScaling{8.0, 1.0, 4.0, 8192});
}

TEST_CASE("every weight of the presets begins at a multiple of 16 bytes of its unit") {
  for (const char* name : {"qwen2_5_0_5b", "qwen2_5_7b", "qwen3_0_6b", "llama_3_8b", "llama_3_1_8b"}) {
    for (const UnitSpec& unit : model_units(preset(name))) {
      for (size_t i = 0; i < unit.parameters.size(); ++i) {
        INFO(name << " " << unit.parameters[i].name);
        CHECK(parameter_offset(unit, i) * 2 % 16 == 0);  // bf16
      }
    }
  }
}

TEST_CASE("FLOPs per token count matrices, not norms and biases") {
  // By hand, for each layer: q, k, v, output, gate, up and down; then the output projection, and attention.
  const double layer = 896.0 * (896 + 2 * 128) + 896 * 896 + 3.0 * 896 * 4864;
  const double small = 6 * (24 * layer + 151936.0 * 896) + 6.0 * 24 * 896 * 2048;
  CHECK(flops_per_token(preset("qwen2_5_0_5b"), 2048) == small);
  const double large_layer = 3584.0 * (3584 + 2 * 512) + 3584.0 * 3584 + 3.0 * 3584 * 18944;
  const double large = 6 * (28 * large_layer + 152064.0 * 3584) + 6.0 * 28 * 3584 * 8192;
  CHECK(flops_per_token(preset("qwen2_5_7b"), 8192) == large);
}

TEST_CASE("FLOPs per token agree with the published figures") {
  CHECK(flops_per_token(preset("llama_3_8b"), 8192) / 1e9 == Approx(51.5).epsilon(0.002));
  CHECK(flops_per_token(preset("qwen3_0_6b"), 1024) / 1e9 == Approx(3.93).epsilon(0.002));
  CHECK(flops_per_token(preset("qwen3_0_6b"), 4096) / 1e9 == Approx(4.99).epsilon(0.002));
}

TEST_CASE("rope parameters are read in both spellings") {
  json object = preset_json("llama_3_1_8b");
  const ModelConfig expected = parse(object);
  json rope = object["rope_scaling"];
  rope["rope_theta"] = object["rope_theta"];
  object.erase("rope_scaling");
  object.erase("rope_theta");
  object["rope_parameters"] = rope;
  CHECK(parse(object) == expected);
  CHECK(expected.rope_theta == 500000.0);
}

TEST_CASE("what to_json writes reads back the same") {
  for (const char* name : {"qwen3_0_6b", "llama_3_8b", "llama_3_1_8b", "qwen3_tiny", "qwen2_5_0_5b", "qwen2_5_7b"}) {
    ModelConfig config = preset(name);
    config.eos_token_ids = {7, 8};
    CHECK(ModelConfig::from_json(config.to_json(), "again") == config);
    CHECK(json::parse(config.to_json("bfloat16"))["dtype"] == "bfloat16");
  }
}

TEST_CASE("single fields can be overridden and are checked again") {
  ModelConfig config = preset("qwen3_0_6b");
  config.vocab_size = 128256;
  config.validate("--vocab_size");
  CHECK(num_parameters(config) == 596'049'920 - (151936 - 128256) * 1024);
  config.num_key_value_heads = 3;
  REQUIRE_THROWS_AS(config.validate("--num_key_value_heads"), UserError);
}

TEST_CASE("what would be computed differently is refused in one sentence") {
  const auto set = [](const char* key, json value) { return [key, value](json& object) { object[key] = value; }; };
  const auto erase = [](const char* key) { return [key](json& object) { object.erase(key); }; };
  CHECK(contains(error("qwen3_0_6b", set("model_type", "mixtral")),
                 {"x/config.json", "mixtral", "\"llama\", \"qwen2\", \"qwen3\""}));
  CHECK(contains(error("qwen3_0_6b", set("hidden_act", "gelu")), {"hidden_act \"gelu\"", "\"silu\""}));
  CHECK(contains(error("qwen3_0_6b", set("attention_bias", true)), {"attention_bias true"}));
  CHECK(contains(error("llama_3_8b", set("attention_bias", true)), {"attention_bias true"}));
  CHECK(contains(error("qwen2_5_7b", set("attention_bias", false)), {"attention_bias false", "remove"}));
  CHECK(contains(error("qwen2_5_7b", set("attention_bias", 1)), {"attention_bias is 1", "true or false"}));
  CHECK(error("qwen2_5_7b", set("attention_bias", true)).empty());
  CHECK(contains(error("qwen2_5_7b", set("use_sliding_window", true)), {"use_sliding_window true"}));
  CHECK(contains(error("llama_3_8b", set("mlp_bias", true)), {"mlp_bias true"}));
  CHECK(contains(error("qwen3_0_6b", set("use_sliding_window", true)), {"use_sliding_window true"}));
  CHECK(contains(error("qwen3_0_6b", set("layer_types", {"sliding_attention"})), {"layer_types", "sliding_attention"}));
  CHECK(contains(error("llama_3_8b", set("attention_dropout", 0.1)), {"attention_dropout 0.1"}));
  CHECK(
      contains(error("llama_3_8b", set("rope_scaling", {{"rope_type", "yarn"}})), {"rope_scaling.rope_type \"yarn\""}));
  CHECK(contains(error("llama_3_8b", set("rope_scaling", {{"rope_type", "llama3"}})), {"\"factor\" is missing"}));
  CHECK(contains(error("llama_3_8b", erase("hidden_size")), {"\"hidden_size\" is missing"}));
  CHECK(contains(error("llama_3_8b", set("hidden_size", "big")), {"hidden_size is \"big\"", "a whole number"}));
  CHECK(contains(error("llama_3_8b", set("hidden_size", 12.5)), {"hidden_size is 12.5"}));
  CHECK(contains(error("llama_3_8b", set("num_attention_heads", 0)), {"num_attention_heads is 0"}));
  CHECK(contains(error("llama_3_8b", set("vocab_size", -1)), {"vocab_size is -1"}));
  CHECK(contains(error("llama_3_8b", set("num_key_value_heads", 5)), {"32", "num_key_value_heads 5"}));
  CHECK(contains(error("llama_3_8b", set("head_dim", 33)), {"head_dim 33 is odd"}));
  CHECK(contains(error("llama_3_8b", set("rms_norm_eps", 0)), {"rms_norm_eps is 0"}));
  CHECK_THROWS_AS(ModelConfig::from_json("{\"model_type\": ", "x"), UserError);
  CHECK_THROWS_AS(ModelConfig::from_json("[]", "x"), UserError);
  CHECK_THROWS_AS(ModelConfig::from_file("no/such/config.json"), UserError);
  CHECK_THROWS_AS(ModelConfig::from_file(MPZERO_SOURCE_DIR), UserError);
}

}  // namespace mpzero::model
