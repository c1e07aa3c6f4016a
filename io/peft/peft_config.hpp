#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "base/lora_config.hpp"
#include "io/checkpoint/stored_checkpoint.hpp"

// Adapter settings in PEFT's adapter_config.json and in checkpoints.
namespace mpzero::io {

inline constexpr const char* kAdapterConfigName = "adapter_config.json";
inline constexpr const char* kAdapterWeightsName = "adapter_model.safetensors";
// Metadata key in adapter_model.safetensors for RunRecord::init_from_hash. PEFT ignores this key.
inline constexpr const char* kBaseHashKey = "mpzero.base_xxh3";

// Contents of an adapter_config.json. read_peft_config() throws UserError, with the key in the message, for unsupported
// settings (DoRA, layers with different ranks, fully trained modules) and for unknown keys that are set.
struct PeftConfig {
  LoraConfig settings;   // no targets unless target_modules lists plain names; callers derive them from the tensors
  std::string base;      // folder or Hub name; may be empty
  std::string revision;  // revision of a base on the Hub; empty for the main branch
};
bool holds_peft_adapters(const std::filesystem::path& folder);
PeftConfig read_peft_config(const std::filesystem::path& folder);

// Returns the adapter settings of a checkpoint, or std::nullopt if the checkpoint has no adapters.
std::optional<LoraConfig> adapters_of(const StoredCheckpoint& checkpoint);

}  // namespace mpzero::io
