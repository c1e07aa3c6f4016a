#include "model/architecture/architectures.hpp"

#include <algorithm>
#include <array>
#include <iterator>
#include <nlohmann/json.hpp>

#include "base/error.hpp"
#include "model/architecture/config_reader.hpp"

namespace mpzero::model {
namespace {

// Guesses the kind of an unsupported model from Hugging Face's naming conventions. Returns null if the kind is unknown.
const char* kind_not_trained(std::string_view model_type) {
  const auto has_any = [&](std::initializer_list<std::string_view> parts) {
    return std::ranges::any_of(parts, [&](auto part) { return model_type.find(part) != std::string_view::npos; });
  };
  if (has_any({"moe", "mixtral", "deepseek_v2", "deepseek_v3", "gpt_oss", "dbrx", "llama4"})) {
    return "a mixture of experts";
  }
  if (has_any({"_vl", "llava", "vision", "mllama", "omni", "audio", "whisper"})) return "an image or audio model";
  return nullptr;
}

}  // namespace

std::span<const Architecture* const> architectures() {
  static constexpr std::array kAll{&kGranite, &kLlama, &kMistral, &kOlmo2,   &kPhi3,
                                   &kQwen2,   &kQwen3, &kSeedOss, &kSmolLm3, &kT5};
  return kAll;
}

const Architecture& find_architecture(std::string_view model_type, std::string_view source) {
  std::string supported;
  for (const Architecture* architecture : architectures()) {
    if (architecture->model_type == model_type) return *architecture;
    supported += fmt::format("{}\"{}\"", supported.empty() ? "" : ", ", architecture->model_type);
  }
  if (const char* kind = kind_not_trained(model_type)) {
    throw_user_error("{}: model_type \"{}\" ({}) is not supported; use one of {} (docs/limits.md).", source, model_type,
                     kind, supported);
  }
  throw_user_error("{}: model_type \"{}\" is not supported; use one of {}.", source, model_type, supported);
}

std::vector<LayerParameter> llama_layer_parameters(const ModelConfig& c, std::vector<LayerParameter> after_values) {
  const int64_t hidden = c.hidden_size, q = c.query_size(), kv = c.key_value_size(), inner = c.intermediate_size;
  std::vector<LayerParameter> parameters = {{LayerRole::kInputNorm, "input_layernorm.weight", {hidden}},
                                            {LayerRole::kQuery, "self_attn.q_proj.weight", {q, hidden}},
                                            {LayerRole::kKey, "self_attn.k_proj.weight", {kv, hidden}},
                                            {LayerRole::kValue, "self_attn.v_proj.weight", {kv, hidden}}};
  std::ranges::move(after_values, std::back_inserter(parameters));
  const LayerParameter rest[] = {{LayerRole::kOutput, "self_attn.o_proj.weight", {hidden, q}},
                                 {LayerRole::kPostAttentionNorm, "post_attention_layernorm.weight", {hidden}},
                                 {LayerRole::kGate, "mlp.gate_proj.weight", {inner, hidden}},
                                 {LayerRole::kUp, "mlp.up_proj.weight", {inner, hidden}},
                                 {LayerRole::kDown, "mlp.down_proj.weight", {hidden, inner}}};
  std::ranges::copy(rest, std::back_inserter(parameters));
  return parameters;
}

std::vector<LayerParameter> llama_layer_parameters(const ModelConfig& c) { return llama_layer_parameters(c, {}); }

std::vector<LayerParameter> biased_layer_parameters(const ModelConfig& c) {
  const int64_t q = c.query_size(), kv = c.key_value_size();
  return llama_layer_parameters(c, {{LayerRole::kQueryBias, "self_attn.q_proj.bias", {q}},
                                    {LayerRole::kKeyBias, "self_attn.k_proj.bias", {kv}},
                                    {LayerRole::kValueBias, "self_attn.v_proj.bias", {kv}}});
}

void refuse_attention_bias(ConfigReader& reader) {
  reader.only("attention_bias", false, "use a model without attention biases");
}

void refuse_mlp_bias(ConfigReader& reader) { reader.only("mlp_bias", false, "use a model without MLP biases"); }

void refuse_sliding_window(ConfigReader& reader) {
  reader.only("use_sliding_window", false, "set it to false to use full attention");
  // These keys have no effect without use_sliding_window.
  reader.harmless({"sliding_window", "max_window_layers"});
}

void read_sliding_window(ConfigReader& reader, ModelConfig& config, std::optional<int64_t> missing) {
  constexpr const char* kKey = "sliding_window";
  config.sliding_window = reader.object().contains(kKey) ? std::nullopt : missing;
  if (reader.find(kKey) != nullptr) config.sliding_window = reader.integer(kKey);
}

void write_sliding_window(const ModelConfig& config, nlohmann::json& json) {
  json["sliding_window"] = config.sliding_window ? nlohmann::json(*config.sliding_window) : nlohmann::json(nullptr);
}

}  // namespace mpzero::model
