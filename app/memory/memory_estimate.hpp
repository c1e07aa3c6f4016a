#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "app/config/run_config.hpp"
#include "app/memory/memory_plan.hpp"
#include "app/simulation/unit_record.hpp"
#include "model/architecture/config.hpp"
#include "model/decoder.hpp"
#include "parallel/codes/weight_codec.hpp"
#include "parallel/host/memory_use.hpp"
#include "parallel/zero/levels.hpp"
#include "parallel/zero/zero_engine.hpp"

namespace mpzero {

// Planned memory of a rank.
struct PlannedMemory {
  struct Part {
    std::string name;
    int64_t bytes = 0;
    std::string note = {};
  };

  parallel::MemoryUse states;
  LayerLevels levels;
  int64_t activations = 0;       // kept from forward to backward
  int64_t host_activations = 0;  // activations offloaded to the host
  int64_t host_inputs = 0;       // layer inputs of host_activations
  int64_t cast_weights = 0;      // FP8 weights kept by `kept_casts` layers
  int64_t kept_casts = 0;
  int64_t workspace = 0;

  MemoryNeed need() const {
    return {.device = device_bytes(states) + activations + cast_weights + workspace,
            .host = host_bytes(states) + host_activations};
  }
  // Return the parts of need() on the device and on the host.
  std::vector<Part> device_parts() const;
  std::vector<Part> host_parts() const;
};

// Formats parts that are not empty, e.g. "parameters 1.11 GiB, activations 0.90 GiB (recompute none x 28)".
std::string describe(const std::vector<PlannedMemory::Part>& parts);

// Returns the shape of a rank's micro-batches, without documents and loss mask.
plan::MicroBatchShape micro_batch_shape(const RunConfig& config, const parallel::ZeroOptions& options,
                                        const parallel::ParallelLayout& ranks);

// Estimates the memory of a rank, in bytes, from the run's configuration. Requires no device.
class MemoryEstimate {
 public:
  // `device`: training device, which need not exist. `peer_gpus`: number of ranks per host whose GPUs access each
  // other's memory; 1 if none do. A larger shard group does not use copy engines, which need a buffer.
  MemoryEstimate(const RunConfig& config, const model::ModelConfig& model, at::Device device,
                 const parallel::ParallelLayout& ranks, int peer_gpus = std::numeric_limits<int>::max());

  const model::Decoder& decoder() const { return decoder_; }
  // Makes the first `layers` layers keep the FP8 casts of their weights; see Decoder::keep_casts().
  void keep_casts(int64_t layers) { decoder_.keep_casts(layers); }
  int64_t kept_casts() const { return decoder_.kept_casts(); }
  // Returns the size in bytes of the FP8 weight casts that the first `layers` layers keep.
  int64_t cast_bytes(int64_t layers) const;
  // Returns the number of layers whose FP8 casts fit in `bytes` bytes, or the configured number of layers if set.
  int64_t kept_casts_within(int64_t bytes) const;
  // Returns true if the run releases gradients: the configured value or, by default, `preferred` if the run then fits
  // within `limit`. Otherwise, the run releases gradients only if it does not fit with all activations on the GPU.
  // Later calls of scenario() include this choice.
  bool choose_release(const MemoryNeed& limit, std::optional<bool> preferred = std::nullopt);
  // Returns the run's current memory settings.
  MemoryScenario scenario() const;
  ActivationSizes activation_sizes(int64_t micro_batch_size) const;
  // Returns the memory of the training state in bytes. `host_extra_bytes`: see parallel::HostUpdateOptions.
  parallel::MemoryUse states_of(const MemoryScenario& scenario,
                                std::optional<int64_t> host_extra_bytes = std::nullopt) const;
  // Returns the recompute levels with the lowest peak memory that `recompute` allows. For kAuto, excludes levels that
  // offload activations to the host.
  LayerLevels leanest(Recomputation recompute) const;
  // Returns the recompute levels that the run uses: for --recompute auto, the fastest levels that fit in `room` bytes
  // of device memory; if no levels fit, and for all other values of --recompute, the levels of leanest(). Offloaded
  // activations use at most `on_host` bytes of host memory if the run would not otherwise fit, and at most half of
  // `on_host` if offloading only saves time, to leave memory for snapshots.
  LayerLevels levels_within(const ActivationSizes& sizes, int64_t room, int64_t on_host = 0) const;
  // Returns true if activations can be offloaded: not on the CPU, and not for T5, whose layers share inputs.
  bool may_offload_activations() const { return !device_.is_cpu() && !decoder_.config().t5; }
  // Returns the recompute levels that the run uses with the training state `states`; see levels_within().
  LayerLevels levels_beside(const parallel::MemoryUse& states, const MemoryNeed& limit) const;
  // Returns the memory of a rank with these states and levels.
  PlannedMemory planned(const parallel::MemoryUse& states, const LayerLevels& levels) const;
  // Chooses the recompute levels and the number of kept FP8 casts. Returns the planned memory.
  PlannedMemory plan(const parallel::MemoryUse& states, const MemoryNeed& limit);
  // Returns the bytes of host memory available for optimizer updates that start before the gradient norm is known, or
  // std::nullopt for no limit.
  std::optional<int64_t> host_extra_bytes(const MemoryNeed& limit) const;
  // Returns changes that fit in `limit`; see changes_that_fit(). `planned`: levels that changes keep.
  std::vector<MemoryChange> changes(const MemoryNeed& limit, const std::optional<LayerLevels>& planned = {}) const;
  // Explains why `memory` exceeds `room` or leaves less than its margin, with changes that would make the run fit.
  // `more_hosts`: a change of the number of hosts.
  std::string problem(const PlannedMemory& memory, const MemoryRoom& room,
                      const std::optional<MemoryChange>& more_hosts = {}) const;
  // Returns the memory that a rank requires with the recompute levels `levels` (default: leanest()).
  // `host_extra_bytes`: see states_of().
  MemoryNeed need(const MemoryScenario& scenario, const std::optional<LayerLevels>& levels = std::nullopt,
                  std::optional<int64_t> host_extra_bytes = std::nullopt) const;
  // Returns the memory that a rank requires with the recompute levels of leanest(). If the run would not otherwise fit
  // within `limit`, releases gradients or, for kAuto, offloads activations, in this order.
  MemoryNeed need_within(const MemoryNeed& limit, const MemoryScenario& scenario,
                         std::optional<int64_t> host_extra_bytes = std::nullopt) const;

 private:
  LayerLevels leanest(const ActivationSizes& sizes, Recomputation recompute) const;
  // Measures the allocations of the model's units on a simulated device.
  ActivationSizes sizes_of(const MemoryScenario& scenario, int64_t kept_casts) const;
  parallel::ZeroOptions options_of(const MemoryScenario& scenario) const;
  // Returns the first scenario that fits within `limit`: `scenario` unchanged, with released gradients, with offloaded
  // activations, or with both. If no scenario fits, returns the scenario that needs the least device memory.
  MemoryScenario fitting(const MemoryNeed& limit, const MemoryScenario& scenario,
                         std::optional<int64_t> host_extra_bytes) const;
  // Returns true if the weights of all layers with FP8 matmuls are gathered in FP8.
  bool gathers_codes(const MemoryScenario& scenario) const;

  RunConfig config_;
  at::Device device_;
  parallel::ParallelLayout ranks_;
  int peer_gpus_;
  std::shared_ptr<const parallel::WeightCodec> codec_;
  model::Decoder decoder_;
  std::vector<std::vector<int64_t>> kinds_;  // see plan::layer_kinds()
  bool releases_gradients_;
  // Cached results of states_of() by stage, offload_optimizer, offload_param, release_gradients, micro-batches and
  // host_extra_bytes.
  mutable std::map<std::tuple<int, bool, bool, bool, int64_t, std::optional<int64_t>>, parallel::MemoryUse> states_;
};

}  // namespace mpzero
