#include "io/peft/peft_config.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.hpp"
#include "base/json.hpp"
#include "base/parameter_spec.hpp"
#include "io/files/atomic_file.hpp"

namespace mpzero::io {
namespace fs = std::filesystem;
using nlohmann::json;
namespace {

// Throws json::exception for a value that is missing or of another type.
AdapterSettings settings_from(const json& object) {
  return {.r = object.at("r").get<int64_t>(),
          .lora_alpha = object.at("lora_alpha").get<double>(),
          .target_modules = object.at("target_modules").get<std::vector<std::string>>(),
          .use_rslora = object.value("use_rslora", false)};
}

// Keys that change what adapters compute or what is trained, with the values that do not.
void refuse_other_methods(const json& config, const std::string& source) {
  const auto only = [&](const char* key, const std::vector<json>& plain) {
    const json value = config.value(key, json());
    if (value.is_null() || std::ranges::find(plain, value) != plain.end()) return;
    throw_user_error("{}: {} is {:.100}, which mpzero does not support; use plain LoRA adapters", source, key,
                     value.dump());
  };
  only("peft_type", {"LORA"});
  only("bias", {"none"});
  for (const char* key : {"use_dora", "fan_in_fan_out", "lora_bias", "use_qalora"}) only(key, {false});
  for (const char* key :
       {"modules_to_save", "layers_to_transform", "layers_pattern", "exclude_modules", "target_parameters",
        "trainable_token_indices", "layer_replication", "alora_invocation_tokens"}) {
    only(key, {json::array(), ""});
  }
  for (const char* key : {"rank_pattern", "alpha_pattern"}) only(key, {json::object()});
}

}  // namespace

bool holds_peft_adapters(const fs::path& folder) { return path_exists(folder / kAdapterConfigName); }

PeftConfig read_peft_config(const fs::path& folder) {
  const fs::path path = folder / kAdapterConfigName;
  const std::optional<std::string> text = read_json_text(path, kConfigurationLimits);
  if (!text) throw_user_error("{} cannot be read; use a folder saved by PEFT", path.string());
  const json config = parse_user_json(*text, path.string(), kConfigurationLimits);
  if (!config.is_object()) throw_user_error("{} is not a JSON object; use a folder saved by PEFT", path.string());
  refuse_other_methods(config, path.string());
  try {
    const json base = config.value("base_model_name_or_path", json());
    return {.settings = settings_from(config),
            .base = base.is_string() ? base.get<std::string>() : "",
            .lora_dropout = config.value("lora_dropout", 0.0)};
  } catch (const json::exception&) {
    throw_user_error("{}: r, lora_alpha and target_modules must be an integer, a number and a list of names",
                     path.string());
  }
}

std::optional<AdapterSettings> adapters_of(const StoredCheckpoint& checkpoint) {
  if (!std::ranges::any_of(checkpoint.parameters(),
                           [](const ParameterSpec& parameter) { return is_adapter(parameter.name); })) {
    return std::nullopt;
  }
  const std::string source = checkpoint.folder().string() + ", config.json";
  try {
    return settings_from(
        parse_user_json(checkpoint.progress().model_config_json, source, kConfigurationLimits).at(kLoraKey));
  } catch (const json::exception& error) {
    throw_user_error("{} has adapters without settings ({}); use a checkpoint of mpzero train", source, error.what());
  }
}

}  // namespace mpzero::io
