#include <filesystem>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>

#include "base/error.hpp"
#include "model/architecture/config.hpp"
#include "tests/catch.hpp"
#include "tests/io/temporary_folder.hpp"

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

TEST_CASE("a number that overflows a double is refused with the file") {
  try {
    ModelConfig::from_json(R"({"model_type": "llama", "rms_norm_eps": 1e400})", "x/config.json");
    FAIL("was accepted");
  } catch (const UserError& e) {
    CHECK(std::string(e.what()).find("x/config.json") == 0);
  }
}

TEST_CASE("presets have the published sizes") {
  // Parameter counts: the sums of the published safetensors indices (Qwen/Qwen3-0.6B tied, meta-llama/Meta-Llama-3-8B,
  // meta-llama/Llama-3.1-70B, Qwen/Qwen2.5-0.5B tied, Qwen/Qwen2.5-7B, Qwen/Qwen3-1.7B and 4B tied, Qwen/Qwen3-8B,
  // mistralai/Mistral-7B-v0.3).
  CHECK(num_parameters(preset("qwen3_0_6b")) == 596'049'920);
  CHECK(num_parameters(preset("qwen3_1_7b")) == 1'720'574'976);
  CHECK(num_parameters(preset("qwen3_4b")) == 4'022'468'096);
  CHECK(num_parameters(preset("qwen3_8b")) == 8'190'735'360);
  CHECK(num_parameters(preset("llama_3_8b")) == 8'030'261'248);
  CHECK(num_parameters(preset("llama_3_1_8b")) == 8'030'261'248);
  CHECK(num_parameters(preset("llama_3_1_70b")) == 70'553'706'496);
  CHECK(num_parameters(preset("qwen2_5_0_5b")) == 494'032'768);
  CHECK(num_parameters(preset("qwen2_5_7b")) == 7'615'616'512);
  CHECK(num_parameters(preset("mistral_7b")) == 7'248'023'552);
  CHECK(num_parameters(preset("qwen3_tiny")) > 800'000);
  CHECK(num_parameters(preset("qwen3_tiny")) < 1'200'000);
  CHECK(preset("qwen3_0_6b").query_size() == 2048);
  CHECK(preset("llama_3_8b").head_dim == 128);
  CHECK_FALSE(preset("llama_3_8b").rope_scaling.has_value());
  CHECK(preset("llama_3_1_8b").rope_scaling == RopeScaling(Llama3RopeScaling{8.0, 1.0, 4.0, 8192}));
}

TEST_CASE("every weight of the presets is aligned to 16 bytes in its unit") {
  for (const char* name :
       {"qwen2_5_0_5b", "qwen2_5_7b", "qwen3_0_6b", "qwen3_8b", "llama_3_8b", "llama_3_1_8b", "llama_3_1_70b"}) {
    for (const UnitSpec& unit : model_units(preset(name))) {
      for (size_t i = 0; i < unit.parameters.size(); ++i) {
        INFO(name << " " << unit.parameters[i].name);
        CHECK(parameter_offset(unit, i) * 2 % 16 == 0);  // bf16
      }
    }
  }
}

TEST_CASE("FLOPs per token include matrices, but not norms and biases") {
  // By hand, for each layer: q, k, v, output, gate, up and down; then the output projection, and attention.
  const double layer = 896.0 * (896 + 2 * 128) + 896 * 896 + 3.0 * 896 * 4864;
  const double small = 6 * (24 * layer + 151936.0 * 896) + 6.0 * 24 * 896 * 2048;
  CHECK(flops_per_token(preset("qwen2_5_0_5b"), 2048) == small);
  const double large_layer = 3584.0 * (3584 + 2 * 512) + 3584.0 * 3584 + 3.0 * 3584 * 18944;
  const double large = 6 * (28 * large_layer + 152064.0 * 3584) + 6.0 * 28 * 3584 * 8192;
  CHECK(flops_per_token(preset("qwen2_5_7b"), 8192) == large);
  // Of frozen matrices the gradients are not computed.
  std::vector<UnitSpec> frozen = model_units(preset("qwen2_5_7b"));
  for (ParameterSpec& parameter : frozen[1].parameters) parameter.trainable = false;
  CHECK(flops_per_token(preset("qwen2_5_7b"), 8192, 0, frozen) == large - 2 * large_layer);
}

TEST_CASE("FLOPs per token agree with published figures") {
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

TEST_CASE("values that depend on max_position_embeddings follow an override") {
  json object = preset_json("qwen3_0_6b");
  object["rope_scaling"] = {{"rope_type", "yarn"}, {"factor", nullptr}, {"original_max_position_embeddings", 1024}};
  const auto with = [&](int64_t positions) {
    json changed = object;
    changed["max_position_embeddings"] = positions;
    return parse(changed);
  };
  CHECK(ModelConfig::from_json(with(2048).to_json(), "x") == with(2048));
  object["max_position_embeddings"] = 2048;
  CHECK(ModelConfig::from_json(object.dump(), "x", 8192) == with(8192));
  CHECK_FALSE(with(2048).rope_scaling == with(8192).rope_scaling);
}

TEST_CASE("unknown or contradictory rope parameters are refused by name") {
  const auto refused = [](const json& changes) {
    return error("llama_3_1_8b", [&](json& object) { object.merge_patch(changes); });
  };
  const std::string file = "x/config.json: ";
  // Also by type of layer: transformers ignores it for llama, and fails for others.
  CHECK(contains(refused({{"rope_parameters", {{"full_attention", {{"rope_theta", 1e4}}}}}}),
                 {file + "unknown key rope_parameters.full_attention"}));
  CHECK(contains(refused({{"rope_parameters", {{"rope_type", "axial"}, {"factor", 4.0}}}}),
                 {file + "rope_parameters.rope_type \"axial\" is not supported"}));
  CHECK(contains(refused({{"rope_scaling", {{"beta_fast", 32}}}}), {file + "unknown key rope_scaling.beta_fast"}));
  CHECK(contains(refused({{"rope_scaling", {{"rope_type", "default"}}}}), {file + "rope_scaling.factor 8.0 is not"}));
  CHECK(contains(refused({{"rope_scaling", {{"type", "linear"}}}}),
                 {file + "rope_scaling.rope_type is \"llama3\" and rope_scaling.type is \"linear\""}));
  CHECK(contains(refused({{"partial_rotary_factor", 0.5}}), {file + "partial_rotary_factor 0.5 is not supported"}));
  CHECK(contains(refused({{"rope_scaling", {{"partial_rotary_factor", 0.5}}}}),
                 {file + "rope_scaling.partial_rotary_factor 0.5 is not supported"}));
  CHECK(contains(refused({{"rope_parameters", {{"rope_theta", 1e4}}}}), {file, "rope_parameters and rope_scaling"}));
  CHECK(contains(refused({{"rope_scaling", nullptr}, {"rope_parameters", {{"rope_theta", 1e4}}}}),
                 {file + "rope_theta is 500000 and rope_parameters.rope_theta is 10000; remove one of them"}));
  CHECK(refused({{"partial_rotary_factor", 1.0}}).empty());
}

TEST_CASE("an unsupported kind of model is reported") {
  const auto refused = [](const std::string& model_type) {
    return error("qwen3_0_6b", [&](json& object) { object["model_type"] = model_type; });
  };
  for (const char* type : {"qwen3_moe", "mixtral"}) CHECK(contains(refused(type), {type, "mixture of experts"}));
  for (const char* type : {"qwen2_vl", "llava"}) CHECK(contains(refused(type), {"image", "docs/limits.md"}));
  CHECK(contains(refused("bert"), {"is not supported"}));
}

TEST_CASE("an unknown key is refused with the most similar known key") {
  const auto with = [](const char* key, const json& value) {
    return error("qwen3_0_6b", [&](json& object) { object[key] = value; });
  };
  CHECK(contains(with("num_key_value_head", 8),
                 {"x/config.json: unknown key num_key_value_head", "did you mean num_key_value_heads?"}));
  CHECK(contains(with("mystery_of_the_deep", 1), {"x/config.json: unknown key mystery_of_the_deep", "remove it"}));
  CHECK(with("mystery_of_the_deep", nullptr).empty());
  // Options of other families are allowed with the value that has no effect.
  const std::vector<std::tuple<const char*, json, json>> options = {
      {"residual_multiplier", 0.22, 1.0},
      {"embedding_multiplier", 12.0, 1},
      {"logits_scaling", 8.0, 1.0},
      {"attention_multiplier", 0.015625, nullptr},
      {"attn_logit_softcapping", 50.0, nullptr},
      {"query_pre_attn_scalar", 256, nullptr},
      {"quantization_config", {{"quant_method", "fp8"}}, nullptr},
      {"num_experts", 8, 0},
      {"rope_interleaved", true, false},
      {"use_mrope", true, false},
      {"is_encoder_decoder", true, false},
      {"resid_pdrop", 0.1, 0.0},
      {"auto_map", {{"AutoModel", "modeling_x.X"}}, nullptr}};
  for (const auto& [key, changing, neutral] : options) {
    INFO(key);
    CHECK(contains(with(key, changing), {std::string("x/config.json: ") + key + " ", "is not supported"}));
    CHECK(with(key, neutral).empty());
  }
  CHECK(contains(with("layer_types", "full_attention"), {"layer_types is \"full_attention\"", "a list"}));
  CHECK(contains(with("layer_types", {"full_attention"}), {"layer_types has 1 entries", "num_hidden_layers is 28"}));
  CHECK(contains(with("is_causal", 1), {"is_causal is 1", "true or false"}));
  CHECK(contains(error("llama_3_8b", [](json& object) { object["sliding_window"] = 4096; }), {"sliding_window 4096"}));
}

TEST_CASE("a file with a duplicate key, or nested too deeply, is refused") {
  const auto problem = [](const std::string& text) {
    try {
      ModelConfig::from_json(text, "x/config.json");
    } catch (const UserError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  std::string twice = preset_json("qwen3_0_6b").dump();
  twice.insert(1, "\"rope_theta\":10000.0,");
  CHECK(problem(twice) == "x/config.json: key rope_theta appears twice; remove one of the two.");
  CHECK(
      contains(problem(fmt::format(R"({{"model_type": {}{}}})", std::string(200'000, '['), std::string(200'000, ']'))),
               {"x/config.json: JSON is nested deeper than 64 levels"}));
}

TEST_CASE("without num_key_value_heads, transformers' default is used") {
  const auto heads = [](const std::string& name, const std::function<void(json&)>& change) {
    json object = preset_json(name);
    object["num_attention_heads"] = 64;
    change(object);
    return parse(object).num_key_value_heads;
  };
  const auto missing = [](json& object) { object.erase("num_key_value_heads"); };
  const auto null = [](json& object) { object["num_key_value_heads"] = nullptr; };
  CHECK(heads("llama_3_8b", missing) == 64);
  CHECK(heads("qwen3_0_6b", missing) == 32);
  CHECK(heads("qwen2_5_7b", missing) == 32);
  for (const char* name : {"llama_3_8b", "qwen3_0_6b", "qwen2_5_7b"}) CHECK(heads(name, null) == 64);
}

TEST_CASE("implausible sizes and overflowing products are refused") {
  const auto with = [](const std::vector<std::pair<const char*, json>>& sizes) {
    return error("llama_3_8b", [&](json& object) {
      for (const auto& [key, value] : sizes) object[key] = value;
    });
  };
  CHECK(contains(with({{"vocab_size", 18446744073709551615U}}),
                 {"vocab_size is 18446744073709551615", "less than 2^63"}));
  CHECK(contains(with({{"num_hidden_layers", 1'000'000}}), {"num_hidden_layers is 1000000", "at most 10000"}));
  constexpr int64_t kHuge = 2'000'000'000;
  CHECK(contains(with({{"vocab_size", kHuge}, {"hidden_size", kHuge}, {"intermediate_size", kHuge}}),
                 {"x/config.json: ", "vocab_size 2000000000", "hidden_size 2000000000", "parameters"}));
  CHECK(contains(with({{"num_attention_heads", kHuge}, {"num_key_value_heads", kHuge}, {"head_dim", kHuge}}),
                 {"num_attention_heads 2000000000", "head_dim 2000000000"}));
}

TEST_CASE("the output of to_json reads back the same") {
  for (const char* name : {"qwen3_0_6b", "llama_3_8b", "llama_3_1_8b", "llama_3_1_70b", "qwen3_tiny", "qwen2_5_0_5b",
                           "qwen2_5_7b", "mistral_7b"}) {
    ModelConfig config = preset(name);
    config.eos_token_ids = {7, 8};
    CHECK(ModelConfig::from_json(config.to_json(), "again") == config);
    CHECK(json::parse(config.to_json("bfloat16"))["dtype"] == "bfloat16");
  }
}

TEST_CASE("unused keys are preserved through any number of checkpoints") {
  for (const char* name : {"qwen3_0_6b", "llama_3_8b", "qwen2_5_0_5b"}) {
    json source = json::parse(preset(name).to_json());
    source["pad_token_id"] = 1;
    source["use_cache"] = false;
    source["transformers_version"] = "4.1";
    source["task_specific_params"] = {{"a", {1, 2.5, nullptr}}};
    source["sep_token_id"] = nullptr;
    source["layer_types"] = std::vector<std::string>(source["num_hidden_layers"], "full_attention");
    source["architectures"] = {"BaseModel"};  // of other names
    ModelConfig config = ModelConfig::from_json(source.dump(), "source");
    CHECK(config == preset(name));
    config.vocab_size += 64;
    config.num_hidden_layers = 3;
    json written = json::parse(ModelConfig::from_json(config.to_json(), "first").to_json());
    for (const char* key : {"pad_token_id", "use_cache", "transformers_version", "task_specific_params"}) {
      CHECK(written[key] == source[key]);
    }
    CHECK((written.contains("sep_token_id") && written["sep_token_id"].is_null()));
    CHECK(written["vocab_size"] == config.vocab_size);
    CHECK(written["layer_types"] == json({"full_attention", "full_attention", "full_attention"}));
    CHECK(written["architectures"] == json::parse(preset(name).to_json())["architectures"]);
  }
}

TEST_CASE("rope scalings round-trip through to_json") {
  for (const char* type : {"linear", "dynamic", "yarn"}) {
    json object = preset_json("llama_3_8b");
    object["rope_scaling"] = {{"rope_type", type}, {"factor", 2}};
    const ModelConfig config = parse(object);
    CHECK(config.rope_scaling);
    CHECK(ModelConfig::from_json(config.to_json(), "again") == config);
  }
}

TEST_CASE("single fields can be overridden and are validated again") {
  ModelConfig config = preset("qwen3_0_6b");
  config.vocab_size = 128256;
  config.validate("--vocab_size");
  CHECK(num_parameters(config) == 596'049'920 - (151936 - 128256) * 1024);
  config.num_key_value_heads = 3;
  REQUIRE_THROWS_AS(config.validate("--num_key_value_heads"), UserError);
}

TEST_CASE("options that mpzero would compute differently are refused in one sentence") {
  const auto set = [](const char* key, json value) { return [key, value](json& object) { object[key] = value; }; };
  const auto erase = [](const char* key) { return [key](json& object) { object.erase(key); }; };
  CHECK(contains(error("qwen3_0_6b", set("model_type", "mixtral")),
                 {"x/config.json", "mixtral", "\"granite\", \"llama\"", "\"qwen3\""}));
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
  CHECK(contains(error("llama_3_8b", set("rope_scaling", {{"rope_type", "su"}})), {"rope_scaling.rope_type \"su\""}));
  const auto scaling = [](const json& keys) {
    return error("llama_3_8b", [&](json& object) { object["rope_scaling"] = keys; });
  };
  CHECK(contains(scaling({{"rope_type", "yarn"}}), {"\"rope_scaling.factor\" is missing"}));
  CHECK(contains(scaling({{"type", "linear"}, {"factor", 0}}), {"factor", "is 0.0"}));
  CHECK(contains(scaling({{"type", "yarn"}, {"factor", 2}, {"beta_fast", 1}}), {"beta_slow", "1.0", "beta_fast 1.0"}));
  CHECK(contains(scaling({{"type", "dynamic"}, {"factor", 2}, {"truncate", true}}), {"rope_scaling.truncate"}));
  CHECK(contains(error("llama_3_8b", set("rope_scaling", {{"rope_type", "llama3"}})),
                 {"\"rope_scaling.factor\" is missing"}));
  CHECK(contains(error("llama_3_8b", erase("hidden_size")), {"\"hidden_size\" is missing"}));
  CHECK(contains(error("llama_3_8b", set("hidden_size", "big")), {"hidden_size is \"big\"", "an integer"}));
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

TEST_CASE("a Hugging Face folder can be used in place of its config.json", "[config]") {
  const io::testing::TemporaryFolder folder;
  std::filesystem::copy_file(std::filesystem::path(MPZERO_SOURCE_DIR) / "configs/models/qwen3_0_6b.json",
                             folder / "config.json");
  CHECK(ModelConfig::from_file(folder.path()).hidden_size == 1024);
}

}  // namespace mpzero::model
