#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "base/lora_config.hpp"
#include "io/checkpoint/stored_checkpoint.hpp"

// The settings of low-rank adapters in files: PEFT's adapter_config.json, and checkpoints.
namespace mpzero::io {

inline constexpr const char* kAdapterConfigName = "adapter_config.json";
inline constexpr const char* kAdapterWeightsName = "adapter_model.safetensors";
// In the metadata of that file, which PEFT does not read: RunRecord::init_from_hash.
inline constexpr const char* kBaseHashKey = "mpzero.base_xxh3";

// An adapter_config.json and the base and revision that it names, which may be empty. Throws UserError, naming file and
// key, unless it is plain LoRA of projections (no DoRA, no different ranks for some layers, no fully trained modules),
// and for unknown keys that are set.
struct PeftConfig {
  LoraConfig settings;  // no targets if adapter_config.json lists no plain names; the tensors' names show them
  std::string base;
  std::string revision;  // of a base on the hub; empty: its main branch
};
bool holds_peft_adapters(const std::filesystem::path& folder);
PeftConfig read_peft_config(const std::filesystem::path& folder);

// A checkpoint's adapters; std::nullopt: it has none.
std::optional<LoraConfig> adapters_of(const StoredCheckpoint& checkpoint);

}  // namespace mpzero::io
