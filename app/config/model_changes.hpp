#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "app/tokens/token_checks.hpp"
#include "model/architecture/config.hpp"

namespace mpzero {

// Whether a run may go on from a checkpoint whose model has another value of a key.
enum class ChangeRule : uint8_t {
  kRefused,    // the weights would mean something else
  kOnPurpose,  // with --allow_changed, as when a context is extended
  kFree,       // the weights mean the same
};

// A key of the model's config.json that two models have different values of, as shown to a user.
struct ModelChange {
  std::string key;
  std::string before;
  std::string now;
  ChangeRule rule = ChangeRule::kRefused;

  bool operator==(const ModelChange&) const = default;
};

// What --allow_changed takes: the keys of ChangeRule::kOnPurpose, and kTokenizerKey of token files.
inline constexpr std::array<const char*, 4> kChangedOnPurpose = {"rope_theta", "rope_scaling", "rms_norm_eps",
                                                                 kTokenizerKey};

// In the order of ModelConfig; empty: nothing differs.
std::vector<ModelChange> model_changes(const model::ModelConfig& before, const model::ModelConfig& now);

}  // namespace mpzero
