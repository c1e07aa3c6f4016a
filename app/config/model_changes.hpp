#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "app/tokens/token_checks.hpp"
#include "model/architecture/config.hpp"

namespace mpzero {

// Rule for a model configuration key whose value differs from the checkpoint's.
enum class ChangeRule : uint8_t {
  kRefused,    // the key changes the meaning of the weights
  kOnPurpose,  // allowed with --allow_changed, e.g. to extend the context
  kFree,       // the key does not change the meaning of the weights
};

// A config.json key with different values in two models, formatted for messages.
struct ModelChange {
  std::string key;
  std::string before;
  std::string now;
  ChangeRule rule = ChangeRule::kRefused;

  bool operator==(const ModelChange&) const = default;
};

// Valid values of --allow_changed: keys with ChangeRule::kOnPurpose, and kTokenizerKey for token files.
inline constexpr std::array<const char*, 4> kChangedOnPurpose = {"rope_theta", "rope_scaling", "rms_norm_eps",
                                                                 kTokenizerKey};

// Returns the keys whose values differ between two models. Keys that all model families share come first; all other
// keys have ChangeRule::kRefused.
std::vector<ModelChange> model_changes(const model::ModelConfig& before, const model::ModelConfig& now);

}  // namespace mpzero
