#include "app/config/model_changes.hpp"

#include <fmt/ranges.h>

#include <nlohmann/json.hpp>
#include <optional>

#include "app/lora/lora_settings.hpp"
#include "model/architecture/config_rope.hpp"

namespace mpzero {
namespace {

using model::ModelConfig;

std::string show(const std::string& text) { return text; }
std::string show(bool value) { return value ? "true" : "false"; }
std::string show(int64_t value) { return fmt::to_string(value); }
std::string show(double value) { return fmt::to_string(value); }
std::string show(const std::optional<int64_t>& value) { return value ? fmt::to_string(*value) : "none"; }
std::string show(const std::vector<int64_t>& values) {
  return values.empty() ? "none" : fmt::to_string(fmt::join(values, " "));
}
std::string show(const std::optional<model::RopeScaling>& scaling) {
  if (!scaling) return "none";
  nlohmann::json keys = model::rope_json(*scaling);
  const auto type = keys["rope_type"].get<std::string>();
  keys.erase("rope_type");
  std::vector<std::string> values;
  for (const auto& [key, value] : keys.items()) values.push_back(fmt::format("{} {}", key, value.dump()));
  return fmt::format("{} ({})", type, fmt::join(values, "; "));
}
// Excludes dropout, which may change.
std::string show(const std::optional<model::T5Config>& t5) {
  if (!t5) return "none";
  return fmt::format("{} encoder layers; {} buckets up to {}; {}; pad_token_id {}; decoder_start_token_id {}",
                     t5->encoder_layers, t5->buckets, t5->max_distance, t5->gated ? "gated-gelu" : "relu",
                     t5->pad_token_id, t5->decoder_start_token_id);
}

// Excludes dropout, which may change.
std::string show(const std::optional<LoraConfig>& lora) { return lora ? describe_lora(*lora) : "none"; }

// Adds the differing config.json keys of one model family. All of them change the meaning of the weights.
void add_keys_of_family(ModelConfig before, ModelConfig now, std::vector<ModelChange>& changes) {
  before.unused = now.unused = {};
  if (before == now) return;
  const auto then = nlohmann::json::parse(before.to_json()), here = nlohmann::json::parse(now.to_json());
  nlohmann::json keys = then;
  keys.update(here);
  for (const auto& [key, value] : keys.items()) {
    const auto text = [&key = key](const nlohmann::json& json) {
      return json.contains(key) ? json[key].dump() : "none";
    };
    if (text(then) != text(here)) changes.push_back({key, text(then), text(here), ChangeRule::kRefused});
  }
}

}  // namespace

std::vector<ModelChange> model_changes(const ModelConfig& before, const ModelConfig& now) {
  std::vector<ModelChange> changes;
  ModelConfig rest = now;  // differs from `before` only in fields without a comparison below
  rest.lora = before.lora;
  rest.t5 = before.t5;
  const auto compare = [&](const char* key, auto member, ChangeRule rule) {
    rest.*member = before.*member;
    if (before.*member == now.*member) return;
    changes.push_back({key, show(before.*member), show(now.*member), rule});
  };
  compare("model_type", &ModelConfig::model_type, ChangeRule::kRefused);
  compare("vocab_size", &ModelConfig::vocab_size, ChangeRule::kRefused);
  compare("hidden_size", &ModelConfig::hidden_size, ChangeRule::kRefused);
  compare("intermediate_size", &ModelConfig::intermediate_size, ChangeRule::kRefused);
  compare("num_hidden_layers", &ModelConfig::num_hidden_layers, ChangeRule::kRefused);
  compare("num_attention_heads", &ModelConfig::num_attention_heads, ChangeRule::kRefused);
  compare("num_key_value_heads", &ModelConfig::num_key_value_heads, ChangeRule::kRefused);
  compare("head_dim", &ModelConfig::head_dim, ChangeRule::kRefused);
  compare("tie_word_embeddings", &ModelConfig::tie_word_embeddings, ChangeRule::kRefused);
  if (const std::string then = show(before.lora), here = show(now.lora); then != here) {
    changes.push_back({"lora", then, here, ChangeRule::kRefused});
  } else if (before.lora && before.lora->dropout != now.lora->dropout) {
    changes.push_back({"lora_dropout", show(before.lora->dropout), show(now.lora->dropout), ChangeRule::kFree});
  }
  if (const std::string then = show(before.t5), here = show(now.t5); then != here) {
    changes.push_back({"t5", then, here, ChangeRule::kRefused});
  } else if (before.t5 && before.t5->dropout_rate != now.t5->dropout_rate) {
    changes.push_back({"dropout_rate", show(before.t5->dropout_rate), show(now.t5->dropout_rate), ChangeRule::kFree});
  }
  compare("rms_norm_eps", &ModelConfig::rms_norm_eps, ChangeRule::kOnPurpose);
  compare("rope_theta", &ModelConfig::rope_theta, ChangeRule::kOnPurpose);
  compare("rope_scaling", &ModelConfig::rope_scaling, ChangeRule::kOnPurpose);
  compare("sliding_window", &ModelConfig::sliding_window, ChangeRule::kFree);
  compare("max_position_embeddings", &ModelConfig::max_position_embeddings, ChangeRule::kFree);
  compare("initializer_range", &ModelConfig::initializer_range, ChangeRule::kFree);
  compare("bos_token_id", &ModelConfig::bos_token_id, ChangeRule::kFree);
  compare("eos_token_id", &ModelConfig::eos_token_ids, ChangeRule::kFree);
  add_keys_of_family(before, rest, changes);
  return changes;
}

}  // namespace mpzero
