#include "app/memory/gpu_peak.hpp"

#include <array>

#include "parallel/comm/gpu_address.hpp"

namespace mpzero {
namespace {

struct Peak {
  std::string_view name;  // part of the GPU's name
  double teraflops;
  double fp32 = 0;  // likewise, of FP32 without tensor cores; 0: not looked up
};

// From NVIDIA's data sheet of each product, "BFLOAT16 Tensor Core"; half of the rate if it is given with sparsity. The
// first match wins, so variants come before the name that they contain.
constexpr std::array kPeaks = {
    Peak{"B200", 2250},          // Blackwell architecture brief: HGX B200, an eighth
    Peak{"H200 NVL", 835, 60},   // H200 data sheet
    Peak{"H200", 989, 67},       // the same, SXM
    Peak{"H100 PCIe", 756, 51},  // H100 data sheet
    Peak{"H100 NVL", 835, 60},   // the same
    Peak{"H100", 989, 67},       // the same, SXM
    Peak{"A100", 312, 19.5},     // A100 data sheet, SXM and PCIe
    Peak{"L40S", 362, 91.6},     // L40S data sheet
    Peak{"L40", 181, 90.5},      // L40 data sheet
    Peak{"L4", 121, 30.3},       // L4 data sheet
};

const Peak* find_peak(std::string_view gpu_name) {
  for (const Peak& peak : kPeaks) {
    if (gpu_name.find(peak.name) != std::string_view::npos) return &peak;
  }
  return nullptr;
}

}  // namespace

std::optional<double> dense_bf16_flops(std::string_view gpu_name) {
  const Peak* const peak = find_peak(gpu_name);
  return peak != nullptr ? std::optional(peak->teraflops * 1e12) : std::nullopt;
}

std::optional<double> fp32_flops(std::string_view gpu_name) {
  const Peak* const peak = find_peak(gpu_name);
  return peak != nullptr && peak->fp32 > 0 ? std::optional(peak->fp32 * 1e12) : std::nullopt;
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
