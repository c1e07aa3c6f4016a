#include "app/health/gpu_condition.hpp"

#include <fmt/ranges.h>

#include <cstdint>
#include <optional>

#include "app/gpu/gpu_readings.hpp"
#include "app/gpu/nvml.hpp"
#include "app/machine/system.hpp"
#include "parallel/comm/gpu_address.hpp"

namespace mpzero {
namespace {

// NVML indices include GPUs that CUDA_VISIBLE_DEVICES hides from CUDA, so compare PCI addresses.
std::optional<size_t> find(const std::vector<doctor::GpuState>& gpus, const std::string& pci_address) {
  for (size_t index = 0; index < gpus.size(); ++index) {
    if (parallel::same_gpu(gpus[index].pci_address, pci_address)) return index;
  }
  return std::nullopt;
}

}  // namespace

std::string gpu_condition(at::Device device) {
  return device.is_cuda() ? gpu_condition(parallel::gpu_address(device.index()), doctor::System{}.nvml) : "";
}

std::string gpu_condition(const std::string& pci_address, const std::vector<std::string>& libraries) {
  const doctor::GpuSurvey survey = doctor::survey_gpus(libraries);
  const std::optional<size_t> index = find(survey.gpus, pci_address);
  if (!index) return "";
  const doctor::GpuState& gpu = survey.gpus[*index];
  std::vector<std::string> parts;
  if (gpu.sm_clock && gpu.max_sm_clock) parts.push_back(fmt::format("{} of {} MHz", *gpu.sm_clock, *gpu.max_sm_clock));
  if (gpu.temperature) parts.push_back(fmt::format("{} °C", *gpu.temperature));
  if (gpu.throttle_reasons) {
    bool slowed = false;
    for (const doctor::ThrottleReason& reason : doctor::kThrottleReasons) {
      if ((*gpu.throttle_reasons & reason.bit) == 0) continue;
      parts.emplace_back(reason.name);
      slowed = true;
    }
    if (!slowed) parts.emplace_back("not throttled");
  }
  return parts.empty() ? "" : fmt::format("GPU {}: {}", *index, fmt::join(parts, ", "));
}

std::string gpu_throttling(at::Device device) {
  return device.is_cuda() ? gpu_throttling(parallel::gpu_address(device.index()), doctor::System{}.nvml) : "";
}

std::string gpu_throttling(const std::string& pci_address, const std::vector<std::string>& libraries) {
  std::vector<std::string> reasons;
  unsigned index = 0;
  for (const doctor::GpuReading& gpu : doctor::GpuReader(libraries, {pci_address}).read()) {
    index = gpu.index;
    for (const doctor::ThrottleReason& reason : doctor::kThrottleReasons) {
      if (reason.fault == doctor::ThrottleFault::kNone) continue;
      if ((gpu.throttle_reasons.value_or(0) & reason.bit) != 0) reasons.emplace_back(reason.name);
    }
  }
  return reasons.empty() ? ""
                         : fmt::format("GPU {} of {} is throttled ({})", index, doctor::host_name(doctor::System{}),
                                       fmt::join(reasons, ", "));
}

}  // namespace mpzero
