#pragma once

#include <array>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "io/checkpoint/stored_checkpoint.hpp"

namespace mpzero {

// One thing that a checkpoint records of its run, e.g. {"settings", "lr", 0.001}.
struct CheckpointFact {
  std::string section;  // "model", "settings", "layout"; empty: of none of them
  std::string key;
  nlohmann::json value;
};

// Of a checkpoint of either format: run, progress, model, settings with the identity of the data, layout. What the
// checkpoint does not know is left out. Throws UserError, naming the checkpoint, where its JSON is none.
std::vector<CheckpointFact> checkpoint_facts(const io::StoredCheckpoint& stored);

// A line each, the sections below headings. What the checkpoint holds cannot move the terminal's cursor.
std::vector<std::string> describe_facts(const std::vector<CheckpointFact>& facts);

// Key and both values of what differs, in the order of `a`, then what only `b` knows. The same tokens are no
// difference.
std::vector<std::array<std::string, 3>> different_facts(const std::vector<CheckpointFact>& a,
                                                        const std::vector<CheckpointFact>& b);

}  // namespace mpzero
