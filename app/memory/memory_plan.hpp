#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "app/config/run_config.hpp"

namespace mpzero {

// What fits on a GPU, as a function of sizes alone; all in bytes of one rank.

// How many decoder layers keep what for their backward. The first layers of the model are those that keep least, since
// the last ones are through, and their memory free, by the time that the first ones run their forward again.
struct LayerLevels {
  int64_t full = 0;       // keep their input only
  int64_t selective = 0;  // keep what is dear to compute again
  int64_t none = 0;       // keep all

  int64_t count() const { return full + selective + none; }
  bool operator==(const LayerLevels&) const = default;
};

// What a micro-batch takes.
struct ActivationSizes {
  struct Level {
    int64_t kept = 0;       // by a layer, from its forward to its backward
    int64_t workspace = 0;  // beside what is kept, while the head or the backward of such a layer runs
  };
  Level full, selective, none;
};

// What all layers keep, at its most.
int64_t kept_activations(const LayerLevels& levels, const ActivationSizes& sizes);

// The most at any moment of a micro-batch: what is kept and what is at work.
int64_t activation_peak(const LayerLevels& levels, const ActivationSizes& sizes);

// The levels whose peak is at most `budget` and that compute least again; none if even kFull needs more. A layer at
// `full` runs its whole forward again, one at `selective` a few passes over its activations, far less than a tenth of
// that: so as few layers as possible at `full`, then as few as possible at `selective`.
std::optional<LayerLevels> cheapest_levels(int64_t layers, const ActivationSizes& sizes, int64_t budget);

// The levels that --recompute asks for; of kAuto those with the lowest peak. The last layers may keep more than their
// input even so: what they keep is what they would make again at once.
LayerLevels leanest_levels(int64_t layers, const ActivationSizes& sizes, Recomputation recompute);

// What a user can change about a run so that it needs less memory. The global batch stays as it is.
struct MemoryScenario {
  Recomputation recompute = Recomputation::kAuto;
  int64_t micro_batch_size = 1;
  int64_t gradient_accumulation_steps = 1;
  int zero_stage = 0;
  bool offload_optimizer = false;
  bool offload_param = false;
};

struct MemoryNeed {
  int64_t device = 0;
  int64_t host = 0;
};

struct MemoryChange {
  MemoryScenario scenario;
  std::string text;   // e.g. "train_micro_batch_size_per_gpu 2 with gradient_accumulation_steps 8"
  int64_t saves = 0;  // on the device
};

// The first `most` changes, from the least to the most intrusive and single ones before combinations, with which `need`
// stays within `limit`. Each differs from those before it in what it changes. `world_size`: sharding needs ranks.
std::vector<MemoryChange> changes_that_fit(const MemoryScenario& now, int world_size, const MemoryNeed& limit,
                                           const std::function<MemoryNeed(const MemoryScenario&)>& need,
                                           size_t most = 2);

// "what would fit: A (saves 12.00 GiB), or B (saves 18.00 GiB)"; advice where there is none.
std::string describe_changes(const std::vector<MemoryChange>& changes);

// e.g. "12.30 GiB".
std::string gibibytes(int64_t bytes);

}  // namespace mpzero
