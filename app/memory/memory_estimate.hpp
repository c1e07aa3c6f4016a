#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <memory>
#include <optional>

#include "app/config/run_config.hpp"
#include "app/memory/memory_plan.hpp"
#include "model/architecture/config.hpp"
#include "model/decoder.hpp"
#include "parallel/codes/weight_codec.hpp"
#include "parallel/host/memory_use.hpp"
#include "parallel/zero/levels.hpp"
#include "parallel/zero/zero_engine.hpp"

namespace mpzero {

// The memory that a rank needs, in bytes, as a function of the run's configuration only: no device is asked.
class MemoryEstimate {
 public:
  // `device`: the kind of device that trains. It need not exist.
  MemoryEstimate(const RunConfig& config, const model::ModelConfig& model, at::Device device,
                 const parallel::ParallelLayout& ranks);

  const model::Decoder& decoder() const { return decoder_; }
  // See Decoder::keep_casts.
  void keep_casts(int64_t layers) { decoder_.keep_casts(layers); }
  // What the configuration says.
  MemoryScenario scenario() const;
  ActivationSizes activation_sizes(int64_t micro_batch_size) const;
  // `host_extra_bytes`: see parallel::HostUpdateOptions.
  parallel::MemoryUse states_of(const MemoryScenario& scenario,
                                std::optional<int64_t> host_extra_bytes = std::nullopt) const;
  // The levels with the lowest peak that `recompute` allows.
  LayerLevels leanest(Recomputation recompute) const;
  // With these levels, or without them the leanest.
  MemoryNeed need(const MemoryScenario& scenario, const std::optional<LayerLevels>& levels = std::nullopt) const;

 private:
  ActivationSizes activation_sizes(const model::Decoder& decoder, int64_t micro_batch_size) const;
  parallel::ZeroOptions options_of(const MemoryScenario& scenario) const;
  // Whether all layers with products in FP8 are gathered as codes.
  bool gathers_codes(const MemoryScenario& scenario) const;

  RunConfig config_;
  at::Device device_;
  parallel::ParallelLayout ranks_;
  std::shared_ptr<const parallel::WeightCodec> codec_;
  model::Decoder decoder_;
};

}  // namespace mpzero
