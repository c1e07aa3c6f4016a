#include "app/memory/gpu_peak.hpp"

#include <fmt/format.h>

#include "app/config/zero_options.hpp"
#include "app/gpu/gpu_models.hpp"
#include "parallel/comm/gpu_address.hpp"

namespace mpzero {

std::optional<PeakTime> peak_step_time(const RunSetup& setup, at::Device device, int world_size) {
  const RunConfig& config = setup.config;
  if (device.is_cpu() || config.dtype != "bf16") return std::nullopt;
  const std::optional<double> peak = dense_bf16_flops(parallel::gpu_properties(device.index()).name);
  if (!peak) return std::nullopt;
  const double tokens = static_cast<double>(config.train_batch_size) * static_cast<double>(config.seq_length);
  const double per_flop = tokens / world_size / *peak;
  const double all = training_flops_per_token(config, setup.model, config.seq_length);
  const double products = setup.model.t5 ? all : training_flops_per_token(config, setup.model, 0);
  return PeakTime{.products = products * per_flop, .attention = (all - products) * per_flop};
}

std::string missing_peak(const RunSetup& setup) {
  if (setup.device == "cpu" || setup.config.dtype != "bf16" || dense_bf16_flops(setup.device)) return "";
  return fmt::format("MFU is unknown: mpzero has no peak bf16 rate for {}", setup.device);
}

}  // namespace mpzero
