#include "app/memory/gpu_peak.hpp"

#include <array>

#include "parallel/comm/gpu_address.hpp"

namespace mpzero {
namespace {

struct Peak {
  std::string_view name;  // part of the GPU's name
  double teraflops;
};

// From NVIDIA's data sheet of each product, "BFLOAT16 Tensor Core"; half of the rate if it is given with sparsity. The
// first match wins, so variants come before the name that they contain.
constexpr std::array kPeaks = {
    Peak{"B200", 2250},      // Blackwell architecture brief: HGX B200, an eighth
    Peak{"H200 NVL", 835},   // H200 data sheet
    Peak{"H200", 989},       // the same, SXM
    Peak{"H100 PCIe", 756},  // H100 data sheet
    Peak{"H100 NVL", 835},   // the same
    Peak{"H100", 989},       // the same, SXM
    Peak{"A100", 312},       // A100 data sheet, SXM and PCIe
    Peak{"L40S", 362},       // L40S data sheet
    Peak{"L40", 181},        // L40 data sheet
    Peak{"L4", 121},         // L4 data sheet
};

}  // namespace

std::optional<double> dense_bf16_flops(std::string_view gpu_name) {
  for (const Peak& peak : kPeaks) {
    if (gpu_name.find(peak.name) != std::string_view::npos) return peak.teraflops * 1e12;
  }
  return std::nullopt;
}

std::optional<double> peak_step_seconds(const RunSetup& setup, at::Device device, int world_size) {
  const RunConfig& config = setup.config;
  if (device.is_cpu() || config.dtype != "bf16") return std::nullopt;
  const std::optional<double> peak = dense_bf16_flops(parallel::gpu_properties(device.index()).name);
  if (!peak) return std::nullopt;
  const double tokens = static_cast<double>(config.train_batch_size) * static_cast<double>(config.seq_length);
  return tokens * model::flops_per_token(setup.model, config.seq_length) / world_size / *peak;
}

}  // namespace mpzero
