#pragma once

#include <array>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "io/checkpoint/stored_checkpoint.hpp"

namespace mpzero {

// One fact that a checkpoint records about its run, e.g. {"settings", "lr", 0.001}.
struct CheckpointFact {
  std::string section;  // "model", "settings", "layout"; empty: none of these
  std::string key;
  nlohmann::json value;
};

// Facts of a checkpoint of either format: run, progress, model, settings with the data's identity, layout. Omits facts
// that the checkpoint does not record. Throws UserError with the checkpoint's path if its JSON is invalid.
std::vector<CheckpointFact> checkpoint_facts(const io::StoredCheckpoint& stored);

// One line per fact, sections below headings. Escapes text that could move the terminal's cursor.
std::vector<std::string> describe_facts(const std::vector<CheckpointFact>& facts);

// Key and both values of each difference, in the order of `a`, followed by facts that only `b` has. Equal tokens are no
// difference.
std::vector<std::array<std::string, 3>> different_facts(const std::vector<CheckpointFact>& a,
                                                        const std::vector<CheckpointFact>& b);

}  // namespace mpzero
