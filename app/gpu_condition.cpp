#include "app/gpu_condition.hpp"

#include <fmt/ranges.h>

#include <charconv>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <vector>

#include "app/doctor/nvml.hpp"
#include "app/doctor/system.hpp"

namespace mpzero {
namespace {

// nvmlClocksThrottleReasons and nvidia-smi's names for them: https://docs.nvidia.com/deploy/nvml-api
struct Reason {
  uint64_t bit;
  const char* name;
};
constexpr Reason kReasons[] = {{0x02, "Applications Clocks Setting"},
                               {0x04, "SW Power Cap"},
                               {0x08, "HW Slowdown"},
                               {0x10, "Sync Boost"},
                               {0x20, "SW Thermal Slowdown"},
                               {0x40, "HW Thermal Slowdown"},
                               {0x80, "HW Power Brake Slowdown"}};

// The management library counts all GPUs, CUDA those that CUDA_VISIBLE_DEVICES names.
std::optional<size_t> index_on_machine(at::Device device) {
  auto wanted = static_cast<size_t>(static_cast<unsigned char>(device.index()));
  const char* visible = std::getenv("CUDA_VISIBLE_DEVICES");
  if (visible == nullptr) return wanted;
  const std::string list = visible;
  size_t begin = 0;
  for (; wanted > 0; --wanted) {
    begin = list.find(',', begin);
    if (begin == std::string::npos) return std::nullopt;
    ++begin;
  }
  size_t index = 0;
  const char* end = list.data() + list.size();
  const auto [rest, error] = std::from_chars(list.data() + begin, end, index);
  // Names such as GPU-8932f937 or MIG-… stand for no place.
  if (error != std::errc() || (rest != end && *rest != ',')) return std::nullopt;
  return index;
}

}  // namespace

std::string gpu_condition(at::Device device) {
  if (!device.is_cuda()) return "";
  const std::optional<size_t> index = index_on_machine(device);
  const doctor::GpuSurvey survey = doctor::survey_gpus(doctor::System{}.nvml);
  if (!index || *index >= survey.gpus.size()) return "";
  const doctor::GpuState& gpu = survey.gpus[*index];
  std::vector<std::string> words;
  if (gpu.sm_clock && gpu.max_sm_clock) words.push_back(fmt::format("{} of {} MHz", *gpu.sm_clock, *gpu.max_sm_clock));
  if (gpu.temperature) words.push_back(fmt::format("{} °C", *gpu.temperature));
  if (gpu.throttle_reasons) {
    bool slowed = false;
    for (const Reason& reason : kReasons) {
      if ((*gpu.throttle_reasons & reason.bit) == 0) continue;
      words.emplace_back(reason.name);
      slowed = true;
    }
    if (!slowed) words.emplace_back("not throttled");
  }
  return words.empty() ? "" : fmt::format("GPU {}: {}", *index, fmt::join(words, ", "));
}

}  // namespace mpzero
