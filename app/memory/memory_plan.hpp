#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "app/config/run_config.hpp"
#include "model/layer_activations.hpp"

namespace mpzero {

// Plans how to fit a run in GPU memory. All sizes are bytes of one rank.

// Returns the memory that a plan leaves free for CUDA kernels and NCCL channels loaded in the first steps, for
// fragmentation, and for errors in the estimate of temporaries.
int64_t memory_margin(int64_t available);
// Returns the part of a host's `available` memory that its ranks may use. The remaining memory is for the system, page
// tables, CUDA, the data loader and other buffers of the processes: 1/8 of `available` up to 8 GiB, 1 GiB from 8 to 32
// GiB, and 1/32 of `available` above. A run that left 1 of 125 GiB free was OOM-killed.
int64_t within_host_margin(int64_t available);
// Assumed GPU memory of the CUDA context and NCCL communicators, used until measured.
constexpr int64_t kUsualContext = int64_t{3} << 30;

// Number of decoder layers at each recompute level. The first layers keep the fewest activations, because their
// backward pass runs after the last layers have freed their memory. Either all layers or none are at kTiled, and either
// all or none are at kHost or kHostAttention.
struct LayerLevels : model::ByLevel<int64_t> {
  LayerLevels() = default;
  LayerLevels(std::initializer_list<std::pair<model::Recompute, int64_t>> layers) {
    for (const auto& [level, count] : layers) (*this)[level] = count;
  }
};

// Returns text such as "none x 20, selective x 8".
std::string describe(const LayerLevels& levels);

// Activation memory of a micro-batch.
struct ActivationSizes {
  struct Level {
    int64_t kept = 0;       // kept from a layer's forward to its backward
    int64_t workspace = 0;  // temporary memory while the layer runs
  };
  using Layer = model::ByLevel<Level>;
  std::vector<Layer> layers;  // in forward order
  // Levels that the model supports.
  std::vector<model::Recompute> levels{model::kRecomputes.begin(), model::kRecomputes.end()};
  int64_t head = 0;             // workspace of the LM head
  int64_t host_parameters = 0;  // offloaded parameters, which move to free device memory
  double copy_passes = 0;       // time to copy a byte over PCIe / mean time of a layer's forward pass
  double attention_share = 0;   // attention's part of a layer's FLOPs

  bool supports(model::Recompute level) const { return std::ranges::find(levels, level) != levels.end(); }
};

// Return the bytes of all layers' activations at the end of the forward pass, on the device and in host memory.
int64_t kept_activations(const LayerLevels& levels, const ActivationSizes& sizes);
int64_t host_activations(const LayerLevels& levels, const ActivationSizes& sizes);
// Returns the bytes of layer inputs in host_activations(); the rest are attention outputs.
int64_t host_inputs(const LayerLevels& levels, const ActivationSizes& sizes);

// Returns the peak bytes of kept activations plus workspace during a micro-batch.
int64_t activation_peak(const LayerLevels& levels, const ActivationSizes& sizes);

// Returns the recompute levels that add the least predicted time and whose peak is at most `budget` bytes, or
// std::nullopt if no levels fit. The time includes recomputation at `full` (the whole forward pass) and at `attention`
// (all of it except attention). The time excludes recomputation at `selective`, which is less than a tenth of that at
// `full`; ties are resolved in favor of fewer layers at `selective`. `tiled` keeps as many activations as `full` and
// reduces the peak only if all layers use it. `host` and `host_attention` may use at most `host_budget` bytes of host
// memory. The time also includes PCIe copies to the extent that they exceed the forward pass: copies of activations,
// and copies of offloaded parameters that do not fit in the remaining device memory.
std::optional<LayerLevels> cheapest_levels(const ActivationSizes& sizes, int64_t budget, int64_t host_budget = 0);

std::vector<model::Recompute> by_layer(const LayerLevels& levels);

// Returns the recompute levels that --recompute requests or, for kAuto, the levels with the lowest peak that need at
// most `host_budget` bytes of host memory. The last layers may keep more than their input if the peak stays the same.
LayerLevels leanest_levels(const ActivationSizes& sizes, Recomputation recompute, int64_t host_budget = 0);

// Settings that a user can change to reduce the memory of a run. The global batch size is fixed.
struct MemoryScenario {
  Recomputation recompute = Recomputation::kAuto;
  int64_t micro_batch_size = 1;
  int64_t gradient_accumulation_steps = 1;
  int zero_stage = 0;
  bool offload_optimizer = false;
  bool offload_param = false;
  bool release_gradients = false;  // requires offload_optimizer and gradient_accumulation_steps 1
  bool keeps_casts = false;        // fp8.cache_weights true: keep all FP8 casts of unsharded weights
  // True if the run's other settings permit the change.
  bool may_offload_optimizer = true;
  bool may_offload_param = true;
  bool may_offload_activations = true;  // --recompute host and host_attention
  bool may_release_gradients = false;   // if the run would not otherwise fit
  bool requires_release = false;        // release_gradients true, which excludes gradient accumulation
  bool forbids_release = false;         // release_gradients false
  std::string new_file_keys{};          // see new_file_keys(); empty if the run has a ds_config.json
};

struct MemoryNeed {
  int64_t device = 0;
  int64_t host = 0;
};

// Memory that a rank may use for states and activations.
struct MemoryRoom {
  MemoryNeed available;
  int64_t margin = 0;   // device memory that a plan leaves free
  int64_t context = 0;  // GPU memory of CUDA, NCCL and other processes
  int ranks = 1;        // ranks per host

  MemoryNeed limit() const { return {.device = available.device - margin, .host = available.host}; }
};

struct MemoryChange {
  MemoryScenario scenario;
  std::string text;   // e.g. "train_micro_batch_size_per_gpu 2 with gradient_accumulation_steps 8"
  int64_t saves = 0;  // bytes on the device
};

// Returns the first `most` changes for which `need` is within `limit`, from the least to the most intrusive. Single
// changes precede combinations, and a combination never includes all settings of an earlier change. `world_size`: if 1,
// no higher ZeRO stage is suggested.
std::vector<MemoryChange> changes_that_fit(const MemoryScenario& now, int world_size, const MemoryNeed& limit,
                                           const std::function<MemoryNeed(const MemoryScenario&)>& need,
                                           size_t most = 2);

// Formats changes, e.g. "set A (saves 12.00 GiB), or B (saves 18.00 GiB)". If `changes` is empty, suggests more ranks,
// more memory per rank, or a smaller model.
std::string describe_changes(const std::vector<MemoryChange>& changes);

// Formats bytes, e.g. "12.30 GiB".
std::string gibibytes(int64_t bytes);

// Formats both sizes of a message such as "needs A, but B is available", in GiB or, if both have the same text in GiB,
// in MiB.
std::pair<std::string, std::string> compared_sizes(int64_t needed, int64_t available);

}  // namespace mpzero
