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

// Training state, besides weights and moments, that a run needs to resume identically.
struct TrainingProgress {
  int64_t step = 0;  // optimizer steps completed: also the position in the schedule and the data
  int64_t tokens_seen = 0;
  int64_t sequences_seen = 0;  // training windows consumed by all ranks together: the data position
  uint64_t seed = 0;           // for initial weights and shuffling
  // Describes the sequences and their order. A run with a different order cannot resume at this position.
  std::string data_order;
  double lr = std::numeric_limits<double>::quiet_NaN();  // applied in the last step; NaN: unknown
  std::string dtype;                                     // "bf16" or "fp32"
  int zero_stage = 0;
  std::string model_config_json;  // the Hugging Face config.json
  std::string run_config_json;    // the ds_config in force, for the record
  // A JSON object of the settings, besides the model, that determine the run's results, as resolved from file, flags
  // and defaults; empty: not recorded. For DeepSpeed's own checkpoints: the optimizer's hyperparameters.
  std::string settings_json;
};

// The units of these shards.
inline std::vector<UnitSpec> units_of(std::span<const UnitShard> shards) {
  std::vector<UnitSpec> units;
  for (const UnitShard& shard : shards) units.push_back(*shard.unit);
  return units;
}

}  // namespace mpzero::io
