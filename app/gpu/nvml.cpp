#include "app/gpu/nvml.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "app/gpu/nvml_library.hpp"
#include "base/text/byte_size.hpp"

namespace mpzero::doctor {
namespace {

struct ProcessInfo {  // nvmlProcessInfo_v2_t
  unsigned pid;
  unsigned long long bytes;
  unsigned gpu_instance, compute_instance;
};
constexpr unsigned long long kUnknownBytes = ~0ULL;

struct FabricInfo {
  unsigned char cluster[16];
  NvmlResult status;
  unsigned clique;
  unsigned char state;  // nvmlGpuFabricState_t
};
constexpr unsigned char kFabricCompleted = 3;

// Identifies an NVLink clique, whose GPUs can access each other. The cluster UUID of a single host is zero.
std::string domain_of(const FabricInfo& fabric) {
  if (std::all_of(std::begin(fabric.cluster), std::end(fabric.cluster), [](unsigned char byte) { return byte == 0; })) {
    return "";
  }
  std::string domain;
  for (const unsigned char byte : fabric.cluster) domain += fmt::format("{:02x}", byte);
  return fmt::format("{} {}", domain, fabric.clique);
}

std::vector<GpuProcess> processes_on(const NvmlLibrary& library, NvmlDevice device) {
  constexpr unsigned kMost = 64;
  std::array<ProcessInfo, kMost> found{};
  unsigned count = kMost;
  if (!library.call("nvmlDeviceGetComputeRunningProcesses_v3", device, &count, found.data())) return {};
  std::vector<GpuProcess> processes;
  for (unsigned i = 0; i < std::min(count, kMost); ++i) {
    GpuProcess process{.pid = found[i].pid, .bytes = std::nullopt};
    if (found[i].bytes != kUnknownBytes) process.bytes = found[i].bytes;
    processes.push_back(process);
  }
  return processes;
}

GpuState look(const NvmlLibrary& library, NvmlDevice device) {
  GpuState gpu;
  gpu.name = library.text("nvmlDeviceGetName", device);
  if (const auto place = library.ask<NvmlPciInfo>("nvmlDeviceGetPciInfo_v3", device)) gpu.pci_address = place->address;
  gpu.temperature = library.ask<unsigned>("nvmlDeviceGetTemperature", device, kTemperatureOfGpu);
  gpu.sm_clock = library.ask<unsigned>("nvmlDeviceGetClockInfo", device, kSmClock);
  gpu.max_sm_clock = library.ask<unsigned>("nvmlDeviceGetMaxClockInfo", device, kSmClock);
  gpu.throttle_reasons = library.ask<unsigned long long>("nvmlDeviceGetCurrentClocksThrottleReasons", device);
  int current = 0, pending = 0;
  if (library.call("nvmlDeviceGetEccMode", device, &current, &pending)) gpu.ecc = current != 0;
  gpu.uncorrected_errors =
      library.ask<unsigned long long>("nvmlDeviceGetTotalEccErrors", device, kUncorrected, kVolatile);
  unsigned corrected_rows = 0, uncorrected_rows = 0, waits = 0, failed = 0;
  if (library.call("nvmlDeviceGetRemappedRows", device, &corrected_rows, &uncorrected_rows, &waits, &failed)) {
    gpu.rows_pending = waits != 0;
    gpu.rows_failed = failed != 0;
  }
  if (const auto memory = library.ask<NvmlMemory>("nvmlDeviceGetMemoryInfo", device)) {
    gpu.total_memory = memory->total;
    gpu.used_memory = memory->used;
  }
  unsigned mig = 0, mig_after_reset = 0;
  if (library.call("nvmlDeviceGetMigMode", device, &mig, &mig_after_reset)) gpu.mig = mig != 0;
  gpu.processes = processes_on(library, device);
  const auto fabric = library.ask<FabricInfo>("nvmlDeviceGetGpuFabricInfo", device);
  if (fabric && fabric->state == kFabricCompleted) gpu.nvlink_domain = domain_of(*fabric);
  return gpu;
}

}  // namespace

std::string memory_in_use(const GpuState& gpu) {
  static constexpr uint64_t kNoticeable = uint64_t{2} << 30;
  if (gpu.used_memory.value_or(0) < kNoticeable || gpu.mig.value_or(false)) return {};
  std::string holders;
  for (const GpuProcess& process : gpu.processes) {
    holders += fmt::format("{}pid {}", holders.empty() ? "" : ", ", process.pid);
    if (process.bytes) holders += ": " + bytes_text(static_cast<int64_t>(*process.bytes));
  }
  const std::string used = bytes_text(static_cast<int64_t>(*gpu.used_memory));
  return holders.empty() ? used : fmt::format("{} ({})", used, holders);
}

GpuSurvey survey_gpus(const std::vector<std::string>& libraries) {
  GpuSurvey survey;
  const NvmlLibrary library(libraries);
  survey.problem = library.problem();
  if (!library) return survey;
  survey.library = true;
  survey.driver = library.text("nvmlSystemGetDriverVersion");
  survey.cuda_version = library.ask<int>("nvmlSystemGetCudaDriverVersion_v2").value_or(0);
  const unsigned count = library.ask<unsigned>("nvmlDeviceGetCount_v2").value_or(0);
  for (unsigned index = 0; index < count; ++index) {
    const auto device = library.ask<NvmlDevice>("nvmlDeviceGetHandleByIndex_v2", index);
    // NVML counts a GPU that has fallen off the bus, but returns no handle for this GPU.
    if (!device) {
      survey.problem = fmt::format("GPU {} does not respond to the driver", index);
      continue;
    }
    survey.gpus.push_back(look(library, *device));
  }
  return survey;
}

}  // namespace mpzero::doctor
