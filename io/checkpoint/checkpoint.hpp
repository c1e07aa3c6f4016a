#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "base/parameter_spec.hpp"

namespace mpzero::io {

using mpzero::StateKind;

// One rank's shard of a flat unit: elements [begin, begin + count) of the unit's concatenated parameters. Excludes the
// padding at the end of the flat buffer, so begin + count <= unit.numel(). `count` may be 0.
struct UnitShard {
  const UnitSpec* unit = nullptr;
  int64_t begin = 0;
  int64_t count = 0;
};

// The training state, other than weights and optimizer moments, that a run needs to resume exactly.
struct TrainingProgress {
  int64_t step = 0;  // completed optimizer steps; the position in the learning rate schedule
  int64_t tokens_seen = 0;
  int64_t sequences_seen = 0;  // training windows consumed by all ranks; the data position
  uint64_t seed = 0;           // seed of initial weights and shuffling
  // Identifies the training sequences and their order. A run with a different data order cannot resume at this
  // position.
  std::string data_order;
  double lr = std::numeric_limits<double>::quiet_NaN();  // learning rate of the last step; NaN if unknown
  std::string dtype;                                     // "bf16" or "fp32"
  int zero_stage = 0;
  std::string model_config_json;  // the Hugging Face config.json
  std::string run_config_json;    // the effective ds_config, for reference only
  // JSON object of the resolved settings, other than the model, that determine the run's results; empty if not
  // recorded. DeepSpeed's own checkpoints provide only the optimizer's hyperparameters.
  std::string settings_json;
};

inline std::vector<UnitSpec> units_of(std::span<const UnitShard> shards) {
  std::vector<UnitSpec> units;
  for (const UnitShard& shard : shards) units.push_back(*shard.unit);
  return units;
}

}  // namespace mpzero::io
