#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "base/parameter_spec.hpp"

namespace mpzero::io {

using mpzero::StateKind;

// One rank's share of a flat unit: elements [begin, begin + count) of the unit's concatenated parameters. Padding at
// the end of the flat buffer is not part of it: begin + count <= unit.numel(), and count may be 0.
struct UnitShard {
  const UnitSpec* unit = nullptr;
  int64_t begin = 0;
  int64_t count = 0;
};

// What a run needs in addition to the weights and moments to continue as if it had not stopped.
struct TrainingProgress {
  int64_t step = 0;  // optimizer steps done: also the position of the schedule and of the data
  int64_t tokens_seen = 0;
  int64_t sequences_seen = 0;  // training windows consumed by all ranks together: the data position
  uint64_t seed = 0;           // of the weights and of the shuffle
  // Describes which sequences there are and in which order. A run with another order cannot continue in the data.
  std::string data_order;
  double lr = std::numeric_limits<double>::quiet_NaN();  // applied in the last step; NaN: not known
  std::string dtype;                                     // "bf16" or "fp32"
  int zero_stage = 0;
  std::string model_config_json;  // the Hugging Face config.json
  std::string run_config_json;    // the ds_config in force, for the record
  // A JSON object of what decided the run's numbers in addition to the model, as it was resolved from file, flags and
  // defaults; empty: not recorded. Of DeepSpeed's own checkpoints it has what their optimizer says.
  std::string settings_json;
};

// The units of which these are shards.
inline std::vector<UnitSpec> units_of(std::span<const UnitShard> shards) {
  std::vector<UnitSpec> units;
  for (const UnitShard& shard : shards) units.push_back(*shard.unit);
  return units;
}

}  // namespace mpzero::io
