#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace mpzero {

// Key of the LoRA configuration in a checkpoint's config.json.
inline constexpr const char* kLoraKey = "mpzero_lora";

// Low-rank adapters of a frozen model (LoRA, arXiv:2106.09685). A target projection computes W x + scale() * B A
// dropout(x), with trainable A [r, in] and B [out, r].
struct LoraConfig {
  int64_t r = 0;
  double alpha = 0;
  std::vector<std::string> targets;  // projections, e.g. q_proj; empty if PEFT's file has a pattern or per-layer names
  bool rslora = false;               // rank-stabilized (arXiv:2312.03732)
  double dropout = 0;                // applied only in training

  // Returns alpha / r, or alpha / sqrt(r) with rslora.
  double scale() const;
  bool operator==(const LoraConfig&) const = default;
};

// Reads the keys of PEFT's LoraConfig from `object` and ignores other keys. Throws UserError with the source and the
// key if a value is missing or has the wrong type.
LoraConfig read_lora_config(const nlohmann::json& object, const std::string& source);
nlohmann::json to_json(const LoraConfig& lora);

}  // namespace mpzero
