#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace mpzero {

// Key in a checkpoint's config.json.
inline constexpr const char* kLoraKey = "mpzero_lora";

// Low-rank adapters of a frozen model (LoRA, arXiv 2106.09685). A projection that is a target computes
// W x + scale() * B A dropout(x). A [r, in] and B [out, r] are trained.
struct LoraConfig {
  int64_t r = 0;
  double alpha = 0;
  std::vector<std::string> targets;  // projections, e.g. q_proj; empty: adapter_config.json lists no plain names
  bool rslora = false;               // rank-stabilized (arXiv 2312.03732)
  double dropout = 0;                // in training

  // alpha / r; with rslora alpha / sqrt(r).
  double scale() const;
  bool operator==(const LoraConfig&) const = default;
};

// Reads the keys of PEFT's LoraConfig; ignores others. Throws UserError with source and key for a missing value or a
// wrong type.
LoraConfig read_lora_config(const nlohmann::json& object, const std::string& source);
nlohmann::json to_json(const LoraConfig& lora);

}  // namespace mpzero
