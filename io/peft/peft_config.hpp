#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "io/checkpoint/stored_checkpoint.hpp"

// The settings of low-rank adapters in files: PEFT's adapter_config.json, and checkpoints.
namespace mpzero::io {

inline constexpr const char* kAdapterConfigName = "adapter_config.json";
inline constexpr const char* kAdapterWeightsName = "adapter_model.safetensors";
inline constexpr const char* kLoraKey = "mpzero_lora";  // of the config.json in a checkpoint

// As adapter_config.json has them. No targets: it does not list plain names, but the names of the tensors tell them.
struct AdapterSettings {
  int64_t r = 0;
  double lora_alpha = 0;
  std::vector<std::string> target_modules;
  bool use_rslora = false;
};

// An adapter_config.json and the base that it names, which may be empty. Throws UserError, naming file and key, for
// what is not plain LoRA of projections (DoRA, other ranks for some layers, modules that are trained whole), and for
// unknown keys that are set.
struct PeftConfig {
  AdapterSettings settings;
  std::string base;
  double lora_dropout = 0;
};
bool holds_peft_adapters(const std::filesystem::path& folder);
PeftConfig read_peft_config(const std::filesystem::path& folder);

// The adapters of a checkpoint; std::nullopt: it has none.
std::optional<AdapterSettings> adapters_of(const StoredCheckpoint& checkpoint);

}  // namespace mpzero::io
