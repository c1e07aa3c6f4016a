#include "io/peft/peft_config.hpp"

#include <algorithm>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <string_view>

#include "base/error.hpp"
#include "base/json.hpp"
#include "base/parameter_spec.hpp"
#include "io/files/atomic_file.hpp"

namespace mpzero::io {
namespace fs = std::filesystem;
using nlohmann::json;
namespace {

// Keys that read_peft_config() reads, and keys that have no effect after training.
constexpr std::string_view kPlainKeys[] = {"r",
                                           "lora_alpha",
                                           "target_modules",
                                           "use_rslora",
                                           "lora_dropout",
                                           "base_model_name_or_path",
                                           "revision",
                                           "auto_mapping",
                                           "eva_config",
                                           "inference_mode",
                                           "megatron_core",
                                           "peft_version",
                                           "qalora_group_size",
                                           "runtime_config",
                                           "task_type"};

// Throws UserError unless all other keys have the values of plain LoRA. This check also rejects future PEFT methods.
void refuse_other_methods(const json& config, const std::string& source) {
  // Only these initializations do not change the base weights.
  const std::map<std::string_view, std::vector<json>> plain = {
      {"peft_type", {"LORA"}}, {"bias", {"none"}}, {"init_lora_weights", {true, "gaussian", "orthogonal", "eva"}}};
  for (const auto& [key, value] : config.items()) {
    if (std::ranges::find(kPlainKeys, key) != std::end(kPlainKeys)) continue;
    if (value == json(false) || value == json("") || value.empty()) continue;  // empty() includes null, [] and {}
    const auto known = plain.find(key);
    if (known != plain.end() && std::ranges::find(known->second, value) != known->second.end()) continue;
    throw_user_error("{}: {} is {:.100}, which mpzero does not support; use standard LoRA adapters", source, key,
                     value.dump());
  }
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
  const auto text_of = [&](const char* key) {
    const json value = config.value(key, json());
    return value.is_string() ? value.get<std::string>() : "";
  };
  return {.settings = read_lora_config(config, path.string()),
          .base = text_of("base_model_name_or_path"),
          .revision = text_of("revision")};
}

std::optional<LoraConfig> adapters_of(const StoredCheckpoint& checkpoint) {
  if (!std::ranges::any_of(checkpoint.parameters(),
                           [](const ParameterSpec& parameter) { return is_adapter(parameter.name); })) {
    return std::nullopt;
  }
  const std::string source = checkpoint.folder().string() + ", config.json";
  const json config = parse_user_json(checkpoint.progress().model_config_json, source, kConfigurationLimits);
  if (!config.is_object() || !config.contains(kLoraKey) || !config[kLoraKey].is_object()) {
    throw_user_error("{} has adapters but no adapter settings ({}); use a checkpoint from mpzero train", source,
                     kLoraKey);
  }
  return read_lora_config(config[kLoraKey], source + ": " + kLoraKey);
}

}  // namespace mpzero::io
