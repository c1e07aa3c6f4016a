#pragma once

#include <array>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "io/checkpoint/stored_checkpoint.hpp"

namespace mpzero {

// One fact that a checkpoint records about its run, e.g. {"settings", "lr", 0.001}.
struct CheckpointFact {
  std::string section;  // "model", "settings" or "layout"; empty: top level
  std::string key;
  nlohmann::json value;
};

// Returns the recorded facts of an mpzero or DeepSpeed checkpoint: run, progress, model, settings, data identity and
// layout. Throws UserError with the checkpoint's path if the JSON in the checkpoint is invalid.
std::vector<CheckpointFact> checkpoint_facts(const io::StoredCheckpoint& stored);

// Formats one line per fact, with a heading for each section. Escapes control characters.
std::vector<std::string> describe_facts(const std::vector<CheckpointFact>& facts);

// Returns {key, value in a, value in b} for each difference, in the order of `a`, followed by the facts that only `b`
// contains. Two data identities are equal if they identify the same tokens.
std::vector<std::array<std::string, 3>> different_facts(const std::vector<CheckpointFact>& a,
                                                        const std::vector<CheckpointFact>& b);

}  // namespace mpzero
