#include "app/memory/memory_estimate.hpp"

#include <algorithm>

#include "app/config/zero_options.hpp"
#include "app/fp8/weight_codec.hpp"
#include "app/memory/unit_order.hpp"

namespace mpzero {

MemoryEstimate::MemoryEstimate(const RunConfig& config, const model::ModelConfig& model, at::Device device,
                               const parallel::ParallelLayout& ranks)
    : config_(config),
      device_(device),
      ranks_(ranks),
      codec_(weight_codec(config.fp8_options, model)),
      decoder_(model, {.fp8 = config.fp8_options}) {
  decoder_.expect_codes(gathers_codes(scenario()));
}

MemoryScenario MemoryEstimate::scenario() const {
  return {.recompute = config_.recompute,
          .micro_batch_size = config_.micro_batch_size,
          .gradient_accumulation_steps = config_.gradient_accumulation_steps,
          .zero_stage = config_.zero.stage,
          .offload_optimizer = config_.zero.offload_optimizer,
          .offload_param = config_.zero.offload_param,
          .keeps_casts = config_.fp8_options && config_.fp8_options->kept_casts == model::KeptCasts::kAll,
          // An update on the host has moments in fp32; compressed parameters are on the GPU: see resolve_compression.
          .may_offload_optimizer = !device_.is_cpu() && config_.moment_dtype == "fp32",
          .may_offload_param = !device_.is_cpu() && !config_.zero.quantized_weights};
}

ActivationSizes MemoryEstimate::activation_sizes(int64_t micro_batch_size) const {
  return activation_sizes(decoder_, micro_batch_size);
}

ActivationSizes MemoryEstimate::activation_sizes(const model::Decoder& decoder, int64_t micro_batch_size) const {
  const at::ScalarType type = zero_options(config_, device_).dtype;
  const auto level = [&](model::Recompute recompute) {
    return ActivationSizes::Level{
        .kept = decoder.activation_bytes(recompute, micro_batch_size, config_.seq_length, device_, type),
        .workspace = decoder.workspace_bytes(micro_batch_size, config_.seq_length, device_, type, recompute)};
  };
  return {.full = level(model::Recompute::kFull),
          .selective = level(model::Recompute::kSelective),
          .none = level(model::Recompute::kNone)};
}

parallel::MemoryUse MemoryEstimate::states_of(const MemoryScenario& scenario,
                                              std::optional<int64_t> host_extra_bytes) const {
  parallel::ZeroOptions options = options_of(scenario);
  options.host_update.extra_bytes = host_extra_bytes;
  return parallel::ZeroEngine::memory_use(
      decoder_.units(), options, ranks_,
      order_of_training(decoder_, std::min<int64_t>(scenario.gradient_accumulation_steps, 2)));
}

parallel::ZeroOptions MemoryEstimate::options_of(const MemoryScenario& scenario) const {
  RunConfig config = config_;
  config.micro_batch_size = scenario.micro_batch_size;
  config.gradient_accumulation_steps = scenario.gradient_accumulation_steps;
  config.zero.stage = scenario.zero_stage;
  config.zero.offload_optimizer = scenario.offload_optimizer;
  config.zero.offload_param = scenario.offload_param;
  parallel::ZeroOptions options = zero_options(config, device_);
  options.codec = codec_;
  return options;
}

bool MemoryEstimate::gathers_codes(const MemoryScenario& scenario) const {
  if (!codec_) return false;
  const std::vector<bool> in_codes =
      parallel::ZeroEngine::units_in_codes(decoder_.units(), options_of(scenario), ranks_);
  for (size_t unit = 0; unit < in_codes.size(); ++unit) {
    if (!in_codes[unit] && !codec_->ranges(unit).empty()) return false;
  }
  return true;
}

LayerLevels MemoryEstimate::leanest(Recomputation recompute) const {
  return leanest_levels(decoder_.config().num_hidden_layers, activation_sizes(config_.micro_batch_size), recompute);
}

MemoryNeed MemoryEstimate::need(const MemoryScenario& scenario, const std::optional<LayerLevels>& levels) const {
  model::Decoder decoder = decoder_;
  if (!scenario.keeps_casts || scenario.zero_stage == 3) decoder.keep_casts(0);
  decoder.expect_codes(gathers_codes(scenario));
  const ActivationSizes sizes = activation_sizes(decoder, scenario.micro_batch_size);
  const parallel::MemoryUse use = states_of(scenario);
  const int64_t activations = activation_peak(
      levels.value_or(leanest_levels(decoder_.config().num_hidden_layers, sizes, scenario.recompute)), sizes);
  return {.device = device_bytes(use) + activations, .host = host_bytes(use)};
}

}  // namespace mpzero
