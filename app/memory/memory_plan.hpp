#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "app/config/run_config.hpp"
#include "model/layer_activations.hpp"

namespace mpzero {

// Fits a run into a GPU's memory, as a function of sizes only; all are bytes of one rank.

// Memory that a plan leaves free: for kernels that CUDA loads and channels that NCCL opens in the first steps, for
// fragmentation, and for errors in the estimate of temporaries.
int64_t memory_margin(int64_t available);
// Host memory that a run leaves free for the system, the data loader's pages, and other buffers of the process.
constexpr int64_t kHostMargin = int64_t{1} << 30;
// GPU memory of CUDA and NCCL's communicators, assumed before it is measured.
constexpr int64_t kUsualContext = int64_t{3} << 30;

// The number of decoder layers at each level of activation checkpointing. The model's first layers keep the least: when
// they recompute their forward, the last layers are done and their memory is free.
struct LayerLevels {
  int64_t host = 0;       // as tiled, and all inputs but the last model::kInputsOnDevice are in host memory
  int64_t tiled = 0;      // keep their input only, and run the MLP by tiles; all layers or none
  int64_t full = 0;       // keep their input only
  int64_t selective = 0;  // keep what is expensive to recompute
  int64_t none = 0;       // keep all

  int64_t count() const { return host + tiled + full + selective + none; }
  bool operator==(const LayerLevels&) const = default;
};

// By the names of model::Recompute, starting with the level that keeps the most.
std::array<std::pair<std::string_view, int64_t>, 5> by_name(const LayerLevels& levels);
// e.g. "none x 20, selective x 8".
std::string describe(const LayerLevels& levels);

// The memory of a micro-batch. Layers may differ.
struct ActivationSizes {
  struct Level {
    int64_t kept = 0;       // by a layer, from its forward to its backward
    int64_t workspace = 0;  // while the layer runs, in addition to what all layers keep
  };
  struct Layer {
    Level tiled, full, selective, none;  // a layer at `host` is one at `tiled`
    const Level& at(model::Recompute recompute) const;
  };
  std::vector<Layer> layers;  // in the order of the forward pass
  int64_t head = 0;           // workspace while the head runs
};

// The sum over all layers, reached at the end of the forward pass: on the device, and in host memory.
int64_t kept_activations(const LayerLevels& levels, const ActivationSizes& sizes);
int64_t host_activations(const LayerLevels& levels, const ActivationSizes& sizes);

// The peak during a micro-batch: kept activations and workspace.
int64_t activation_peak(const LayerLevels& levels, const ActivationSizes& sizes);

// The levels with the least recomputation whose peak is at most `budget`; std::nullopt if all need more. A layer at
// `full` recomputes its whole forward; one at `selective` a few passes over its activations, far less than a tenth of
// that. So as few layers as possible are at `full`, then as few as possible at `selective`. A layer at `tiled` keeps as
// much as one at `full`, and its smaller workspace only helps if no layer has a larger one. `host` is the last choice,
// if its activations in host memory are at most `host_budget`.
std::optional<LayerLevels> cheapest_levels(const ActivationSizes& sizes, int64_t budget, int64_t host_budget = 0);

std::vector<model::Recompute> by_layer(const LayerLevels& levels);

// The levels that --recompute requests; for kAuto, those with the lowest peak within `host_budget`. The last layers may
// still keep more than their input, which they would recompute immediately.
LayerLevels leanest_levels(const ActivationSizes& sizes, Recomputation recompute, int64_t host_budget = 0);

// Settings that a user can change to reduce a run's memory. The global batch stays the same.
struct MemoryScenario {
  Recomputation recompute = Recomputation::kAuto;
  int64_t micro_batch_size = 1;
  int64_t gradient_accumulation_steps = 1;
  int zero_stage = 0;
  bool offload_optimizer = false;
  bool offload_param = false;
  bool keeps_casts = false;  // all FP8 casts of weights, if parameters are not sharded: fp8.cache_weights true
  // Whether other settings of the run, which stay unchanged, allow these changes.
  bool may_offload_optimizer = true;
  bool may_offload_param = true;
  bool may_offload_activations = true;  // --recompute host
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

// The first `most` changes for which `need` stays within `limit`, from the least to the most intrusive, single changes
// before combinations. Each changes other settings than the previous ones. `world_size`: sharding needs several ranks.
std::vector<MemoryChange> changes_that_fit(const MemoryScenario& now, int world_size, const MemoryNeed& limit,
                                           const std::function<MemoryNeed(const MemoryScenario&)>& need,
                                           size_t most = 2);

// "this would fit: A (saves 12.00 GiB), or B (saves 18.00 GiB)"; advice if `changes` is empty.
std::string describe_changes(const std::vector<MemoryChange>& changes);

// e.g. "12.30 GiB".
std::string gibibytes(int64_t bytes);

}  // namespace mpzero
