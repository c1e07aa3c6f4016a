#include <map>

#include "io/deepspeed/plan.hpp"
#include "model/architecture/architectures.hpp"
#include "tests/catch.hpp"

namespace mpzero::io {
namespace {

model::ModelConfig small_model(std::string_view model_type) {
  model::ModelConfig config;
  config.model_type = model_type;
  config.vocab_size = 11;
  config.hidden_size = config.intermediate_size = config.max_position_embeddings = 8;
  config.num_hidden_layers = config.num_attention_heads = config.num_key_value_heads = 2;
  config.head_dim = 4;
  return config;
}

// Returns the order of a layer's modules, " q_proj k_proj ...": named_parameters() of transformers 5.23.
std::string layer_order(std::string_view model_type) {
  const std::string qkvo = " q_proj k_proj v_proj o_proj", mlp = " gate_proj up_proj down_proj";
  const std::string biased = " q_proj q_proj.bias k_proj k_proj.bias v_proj v_proj.bias o_proj";
  const std::string qk_norms = " q_norm k_norm", norms = " input_layernorm post_attention_layernorm";
  const std::map<std::string_view, std::string> orders = {
      {"granite", qkvo + mlp + norms},
      {"llama", qkvo + mlp + norms},
      {"mistral", qkvo + mlp + norms},
      {"olmo2", qkvo + qk_norms + mlp + " post_attention_layernorm post_feedforward_layernorm"},
      {"phi3", " o_proj qkv_proj gate_up_proj down_proj" + norms},
      {"qwen2", biased + mlp + norms},
      {"qwen3", qkvo + qk_norms + mlp + norms},
      {"seed_oss", biased + mlp + norms},
      {"smollm3", qkvo + mlp + norms}};
  return orders.at(model_type);
}

}  // namespace

TEST_CASE("DeepSpeed's files have a place for each weight of each architecture, in transformers' order") {
  for (const model::Architecture& architecture : model::architectures()) {
    model::ModelConfig config = small_model(architecture.model_type);
    if (architecture.layer_parameters == nullptr) config.t5 = model::T5Config{.encoder_layers = 1};
    const std::vector<UnitSpec> units = model::model_units(config);
    for (const int stage : {2, 3}) {
      INFO(architecture.model_type << ", stage " << stage);
      TrainingProgress progress;
      progress.dtype = "fp32";
      progress.zero_stage = stage;
      DeepSpeedSettings settings;
      settings.ranks = 2;
      const DeepSpeedPlan plan(progress, units, settings);
      std::string order;
      for (const ParameterSpec& parameter : plan.layout().parameters()) {
        const std::string module = parameter.name.substr(0, parameter.name.rfind('.'));
        order += " " + module.substr(module.rfind('.') + 1) + (parameter.name.ends_with(".bias") ? ".bias" : "");
      }
      // T5's units have the order of transformers.
      if (!config.t5) {
        const std::string layer = layer_order(config.model_type);
        CHECK(order == " embed_tokens" + layer + layer + " norm lm_head");
      }
      for (const UnitSpec& unit : units) {
        for (const ParameterSpec& parameter : unit.parameters) {
          int64_t found = 0;
          plan.layout().visit(parameter.name, 0, parameter.numel(),
                              [&](const DeepSpeedLayout::Slice& slice) { found += slice.count; });
          CHECK(found == parameter.numel());
        }
      }
    }
  }
}

}  // namespace mpzero::io
