// Properties of all model families except T5 (t5.cpp).
#include <algorithm>
#include <array>
#include <iterator>
#include <nlohmann/json.hpp>

#include "base/error.hpp"
#include "model/architecture/architectures.hpp"
#include "model/architecture/config_reader.hpp"

namespace mpzero::model {
namespace {

using nlohmann::json;

// Helpers for read_options that throw UserError with file, key and value if the option is enabled.
void refuse_mlp_bias(ConfigReader& reader) { reader.only("mlp_bias", false, "use a model without MLP biases"); }

void refuse_sliding_window(ConfigReader& reader) {
  reader.only("use_sliding_window", false, "set it to false to use full attention");
  // These keys have no effect without use_sliding_window.
  reader.harmless({"sliding_window", "max_window_layers"});
}

void write_full_attention(const ModelConfig& config, json& object) {
  object["use_sliding_window"] = false;
  object["sliding_window"] = nullptr;
  object["max_window_layers"] = config.num_hidden_layers;
}

// Helpers for families whose sliding_window does not depend on other options. `missing`: default of the sliding_window
// key. The value null disables the window.
void read_sliding_window(ConfigReader& reader, ModelConfig& config, std::optional<int64_t> missing) {
  constexpr const char* kKey = "sliding_window";
  config.sliding_window = reader.object().contains(kKey) ? std::nullopt : missing;
  if (reader.find(kKey) != nullptr) config.sliding_window = reader.integer(kKey);
}

void write_sliding_window(const ModelConfig& config, json& object) {
  object["sliding_window"] = config.sliding_window ? json(*config.sliding_window) : json(nullptr);
}

// Returns Llama's weights, with `after_values` inserted after the value projection.
std::vector<LayerParameter> llama_with(const ModelConfig& c, std::vector<LayerParameter> after_values) {
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

// Returns Llama's weights and the biases of the query, key and value projections.
std::vector<LayerParameter> biased_layer_parameters(const ModelConfig& c) {
  const int64_t q = c.query_size(), kv = c.key_value_size();
  return llama_with(c, {{LayerRole::kQueryBias, "self_attn.q_proj.bias", {q}},
                        {LayerRole::kKeyBias, "self_attn.k_proj.bias", {kv}},
                        {LayerRole::kValueBias, "self_attn.v_proj.bias", {kv}}});
}

std::vector<LayerParameter> olmo2_layer_parameters(const ModelConfig& c) {
  const int64_t hidden = c.hidden_size, q = c.query_size(), kv = c.key_value_size(), inner = c.intermediate_size;
  return {{LayerRole::kQuery, "self_attn.q_proj.weight", {q, hidden}},
          {LayerRole::kKey, "self_attn.k_proj.weight", {kv, hidden}},
          {LayerRole::kValue, "self_attn.v_proj.weight", {kv, hidden}},
          {LayerRole::kQueryTokenNorm, "self_attn.q_norm.weight", {q}},
          {LayerRole::kKeyTokenNorm, "self_attn.k_norm.weight", {kv}},
          {LayerRole::kOutput, "self_attn.o_proj.weight", {hidden, q}},
          {LayerRole::kAttentionOutputNorm, "post_attention_layernorm.weight", {hidden}},
          {LayerRole::kGate, "mlp.gate_proj.weight", {inner, hidden}},
          {LayerRole::kUp, "mlp.up_proj.weight", {inner, hidden}},
          {LayerRole::kDown, "mlp.down_proj.weight", {hidden, inner}},
          {LayerRole::kMlpOutputNorm, "post_feedforward_layernorm.weight", {hidden}}};
}

std::vector<LayerParameter> phi3_layer_parameters(const ModelConfig& c) {
  const int64_t hidden = c.hidden_size, q = c.query_size(), kv = c.key_value_size(), inner = c.intermediate_size;
  return {{LayerRole::kInputNorm, "input_layernorm.weight", {hidden}},
          {LayerRole::kQuery, "self_attn.qkv_proj.weight", {q + 2 * kv, hidden}},
          {LayerRole::kOutput, "self_attn.o_proj.weight", {hidden, q}},
          {LayerRole::kPostAttentionNorm, "post_attention_layernorm.weight", {hidden}},
          {LayerRole::kGate, "mlp.gate_up_proj.weight", {2 * inner, hidden}},
          {LayerRole::kDown, "mlp.down_proj.weight", {hidden, inner}}};
}

std::vector<LayerParameter> qwen3_layer_parameters(const ModelConfig& c) {
  return llama_with(c, {{LayerRole::kQueryNorm, "self_attn.q_norm.weight", {c.head_dim}},
                        {LayerRole::kKeyNorm, "self_attn.k_norm.weight", {c.head_dim}}});
}

constexpr std::array kSeedOssDropouts = {"attention_dropout", "residual_dropout"};

// Returns true for layers with RoPE. As in transformers, every no_rope_layer_interval-th layer lacks RoPE by default.
std::vector<bool> read_rotated_layers(ConfigReader& reader, int64_t layers) {
  const int64_t interval = reader.integer("no_rope_layer_interval", 4);
  const json* given = reader.find("no_rope_layers");
  if (given != nullptr && !given->is_array()) reader.wrong("no_rope_layers", *given, "a list");
  if (interval < 1) reader.wrong("no_rope_layer_interval", interval, "at least 1");
  std::vector<bool> rotated;
  if (given == nullptr) {
    for (int64_t layer = 0; layer < layers; ++layer) rotated.push_back((layer + 1) % interval != 0);
    return rotated;
  }
  for (const json& entry : *given) {
    if (entry != 0 && entry != 1) reader.wrong("no_rope_layers", *given, "a list of 0s and 1s");
    rotated.push_back(entry == 1);
  }
  return rotated;
}

}  // namespace

std::vector<LayerParameter> llama_layer_parameters(const ModelConfig& c) { return llama_with(c, {}); }

std::span<const Architecture> architectures() {
  static const Architecture kFamilies[] = {
      // Granite 3 (dense): Llama with multipliers for embedding, attention scores, residual branches and logits.
      {.model_type = "granite",
       .causal_lm_class = "GraniteForCausalLM",
       .read_options =
           [](ConfigReader& reader, ModelConfig& config) {
             refuse_mlp_bias(reader);
             config.embedding_multiplier = reader.number("embedding_multiplier", 1.0);
             config.residual_multiplier = reader.number("residual_multiplier", 1.0);
             config.logits_scaling = reader.number("logits_scaling", 1.0);
             config.attention_multiplier = reader.number("attention_multiplier", 1.0);
           },
       .write_options =
           [](const ModelConfig& config, json& object) {
             object["mlp_bias"] = false;
             object["embedding_multiplier"] = config.embedding_multiplier;
             object["residual_multiplier"] = config.residual_multiplier;
             object["logits_scaling"] = config.logits_scaling;
             object["attention_multiplier"] = config.attention_multiplier.value_or(1.0);
           }},
      // Llama 3 and 3.1, and older Llama models with the same keys.
      {.model_type = "llama",
       .causal_lm_class = "LlamaForCausalLM",
       .read_options =
           [](ConfigReader& reader, ModelConfig&) {
             refuse_mlp_bias(reader);
             reader.only("sliding_window", nullptr, "use a model with full attention");
           },
       .write_options =
           [](const ModelConfig&, json& object) {
             object["mlp_bias"] = false;
             object["pretraining_tp"] = 1;
           }},
      // Mistral 7B: Llama with an optional sliding window.
      {.model_type = "mistral",
       .causal_lm_class = "MistralForCausalLM",
       .default_key_value_heads = 8,
       .read_options = [](ConfigReader& reader,
                          ModelConfig& config) { read_sliding_window(reader, config, /*missing=*/4096); },
       .write_options = write_sliding_window},
      // OLMo 2: Llama with norms on the outputs (not inputs) of attention and MLP, and on all queries and all keys of a
      // token.
      {.model_type = "olmo2",
       .causal_lm_class = "Olmo2ForCausalLM",
       .default_rms_norm_eps = 1e-5,
       .layer_parameters = olmo2_layer_parameters},
      // Phi-3 and Phi-4 (not mini): Llama with one weight for queries, keys and values, and one weight for gate and up.
      {.model_type = "phi3",
       .causal_lm_class = "Phi3ForCausalLM",
       .default_rms_norm_eps = 1e-5,
       .read_options =
           [](ConfigReader& reader, ModelConfig& config) {
             read_sliding_window(reader, config, /*missing=*/{});
             if (!config.rope_scaling) return;
             if (!std::holds_alternative<LongRopeScaling>(*config.rope_scaling)) {
               throw_user_error("{}: phi3 supports only rope_type \"longrope\" in rope_scaling; remove rope_scaling.",
                                reader.source());
             }
             // Required, because transformers' default for a missing key takes precedence over the scaling's value.
             reader.integer(kOriginalPositions);
           },
       .write_options =
           [](const ModelConfig& config, json& object) {
             write_sliding_window(config, object);
             if (config.rope_scaling) object[kOriginalPositions] = object["rope_parameters"][kOriginalPositions];
           },
       .layer_parameters = phi3_layer_parameters},
      // Qwen2 and Qwen2.5 (dense): Llama with query, key and value biases.
      {.model_type = "qwen2",
       .causal_lm_class = "Qwen2ForCausalLM",
       .default_key_value_heads = 32,
       .attention_bias = true,
       .read_options =
           [](ConfigReader& reader, ModelConfig&) {
             reader.only("attention_bias", true, "qwen2 always has query, key and value biases; remove the key");
             refuse_sliding_window(reader);
           },
       .write_options =
           [](const ModelConfig& config, json& object) {
             object.erase("attention_bias");
             write_full_attention(config, object);
           },
       .layer_parameters = biased_layer_parameters},
      // Qwen3 (dense): Llama with an RMS norm for each query and key head and a different default head size.
      {.model_type = "qwen3",
       .causal_lm_class = "Qwen3ForCausalLM",
       .default_head_dim = 128,
       .default_key_value_heads = 32,
       .read_options = [](ConfigReader& reader, ModelConfig&) { refuse_sliding_window(reader); },
       .write_options = write_full_attention,
       .layer_parameters = qwen3_layer_parameters},
      // Seed-OSS: Llama with query, key and value biases and a different default head size.
      {.model_type = "seed_oss",
       .causal_lm_class = "SeedOssForCausalLM",
       .default_head_dim = 128,
       .default_key_value_heads = 8,
       .attention_bias = true,
       .read_options =
           [](ConfigReader& reader, ModelConfig&) {
             reader.only("attention_bias", true, "use a model with query, key and value biases");
             reader.only("attention_out_bias", false, "use a model without an output projection bias");
             refuse_mlp_bias(reader);
             // transformers interprets null as hidden_size / num_attention_heads and a missing key
             // as 128.
             if (reader.object().contains("head_dim")) {
               const json& head_dim = reader.object()["head_dim"];
               if (head_dim.is_null()) reader.wrong("head_dim", head_dim, "an integer");
             }
             // In transformers, the default for a missing key is 0.1.
             for (const char* key : kSeedOssDropouts) reader.number(key);
           },
       .write_options =
           [](const ModelConfig&, json& object) {
             object["attention_out_bias"] = false;
             object["mlp_bias"] = false;
             for (const char* key : kSeedOssDropouts) object[key] = 0.0;
           },
       .layer_parameters = biased_layer_parameters},
      // SmolLM3: Llama with some layers without RoPE (NoPE).
      {.model_type = "smollm3",
       .causal_lm_class = "SmolLM3ForCausalLM",
       .tied_by_default = true,
       .default_rope_theta = 2000000.0,
       .default_key_value_heads = 4,
       .read_options =
           [](ConfigReader& reader, ModelConfig& config) {
             refuse_mlp_bias(reader);
             refuse_sliding_window(reader);
             config.rotated_layers = read_rotated_layers(reader, config.num_hidden_layers);
           },
       .write_options =
           [](const ModelConfig& config, json& object) {
             object["mlp_bias"] = false;
             object["use_sliding_window"] = false;
             object["sliding_window"] = nullptr;
             object["no_rope_layers"] = json::array();
             for (const bool rotated : config.rotated_layers) object["no_rope_layers"].push_back(rotated ? 1 : 0);
           }},
      kT5};
  return kFamilies;
}

}  // namespace mpzero::model
