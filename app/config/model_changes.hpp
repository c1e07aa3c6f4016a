#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "app/tokens/token_checks.hpp"
#include "model/architecture/config.hpp"

namespace mpzero {

// Whether a run may resume from a checkpoint whose model has a different value for a key.
enum class ChangeRule : uint8_t {
  kRefused,    // changes the meaning of the weights
  kOnPurpose,  // with --allow_changed, e.g. to extend the context
  kFree,       // does not change the meaning of the weights
};

// A key of config.json whose value differs between two models, formatted for messages.
struct ModelChange {
  std::string key;
  std::string before;
  std::string now;
  ChangeRule rule = ChangeRule::kRefused;

  bool operator==(const ModelChange&) const = default;
};

// Valid keys for --allow_changed: those with ChangeRule::kOnPurpose, and kTokenizerKey for token files.
inline constexpr std::array<const char*, 4> kChangedOnPurpose = {"rope_theta", "rope_scaling", "rms_norm_eps",
                                                                 kTokenizerKey};

// The differing keys, in the order of ModelConfig.
std::vector<ModelChange> model_changes(const model::ModelConfig& before, const model::ModelConfig& now);

}  // namespace mpzero
