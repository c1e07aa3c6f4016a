#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <memory>
#include <optional>
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

// A rank's memory need in bytes, computed only from the run's configuration, without a device.
class MemoryEstimate {
 public:
  // `device`: the kind of device that trains. It need not exist.
  MemoryEstimate(const RunConfig& config, const model::ModelConfig& model, at::Device device,
                 const parallel::ParallelLayout& ranks);

  const model::Decoder& decoder() const { return decoder_; }
  // The first `layers` layers keep the FP8 casts of their weights; see Decoder::keep_casts.
  void keep_casts(int64_t layers) { decoder_.keep_casts(layers); }
  int64_t kept_casts() const { return decoder_.kept_casts(); }
  // Bytes of the kept casts of the first `layers` layers.
  int64_t cast_bytes(int64_t layers) const;
  // The number of layers whose casts fit in `bytes`; if the run may not choose, the number that keeps them.
  int64_t kept_casts_within(int64_t bytes) const;
  // The configured scenario.
  MemoryScenario scenario() const;
  ActivationSizes activation_sizes(int64_t micro_batch_size) const;
  // `host_extra_bytes`: see parallel::HostUpdateOptions.
  parallel::MemoryUse states_of(const MemoryScenario& scenario,
                                std::optional<int64_t> host_extra_bytes = std::nullopt) const;
  // The levels with the lowest peak that `recompute` allows; of kAuto those without activations on the host.
  LayerLevels leanest(Recomputation recompute) const;
  // Whether layer inputs may wait in host memory: not on the CPU, and not those of T5, whose layers share inputs.
  bool may_offload_activations() const { return !device_.is_cpu() && !decoder_.config().t5; }
  // The memory needed with `levels` (default: the leanest). `host_extra_bytes`: see states_of().
  MemoryNeed need(const MemoryScenario& scenario, const std::optional<LayerLevels>& levels = std::nullopt,
                  std::optional<int64_t> host_extra_bytes = std::nullopt) const;
  // The same with the leanest levels; of kAuto with activations on the host if only that is within `limit`.
  MemoryNeed need_within(const MemoryNeed& limit, const MemoryScenario& scenario,
                         std::optional<int64_t> host_extra_bytes = std::nullopt) const;

 private:
  LayerLevels leanest(const ActivationSizes& sizes, Recomputation recompute) const;
  // Allocations of a model's units on a simulated device.
  ActivationSizes sizes_of(const MemoryScenario& scenario, int64_t kept_casts) const;
  ActivationSizes record_sizes(int64_t micro_batch_size, const parallel::GradientTarget& gradients,
                               plan::WeightCasts casts) const;
  parallel::ZeroOptions options_of(const MemoryScenario& scenario) const;
  // Whether all layers with FP8 products are gathered quantized.
  bool gathers_codes(const MemoryScenario& scenario) const;

  RunConfig config_;
  at::Device device_;
  parallel::ParallelLayout ranks_;
  std::shared_ptr<const parallel::WeightCodec> codec_;
  model::Decoder decoder_;
  std::vector<plan::LayerKind> kinds_;
};

}  // namespace mpzero
