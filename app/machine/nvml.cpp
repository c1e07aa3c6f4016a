#include "app/machine/nvml.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "app/machine/shared_library.hpp"
#include "app/machine/system.hpp"

namespace mpzero::doctor {
namespace {

// Declarations of NVML's stable C interface, version 2 of the calls that have versions: neither the wheels nor the
// driver include the header. https://docs.nvidia.com/deploy/nvml-api
using Result = int;
using Device = void*;
constexpr Result kSuccess = 0;
constexpr int kTemperatureOfGpu = 0;
constexpr int kSlowdownThreshold = 1;
constexpr int kSmClock = 1;
constexpr int kUncorrected = 1;
constexpr int kVolatile = 0;

struct Memory {
  unsigned long long total, free, used;
};

struct ProcessInfo {  // version 2 of the structure, version 3 of the call
  unsigned pid;
  unsigned long long bytes;
  unsigned gpu_instance, compute_instance;
};
constexpr unsigned long long kUnknownBytes = ~0ULL;

struct FabricInfo {
  unsigned char cluster[16];
  Result status;
  unsigned clique;
  unsigned char state;
};

struct PciInfo {  // version 3
  char legacy_address[16];
  unsigned domain, bus, device, device_id, subsystem_id;
  char address[32];
};

// Calls `name` of the library with `arguments`, if it exists.
template <typename... Arguments>
bool call(const SharedLibrary& library, const char* name, Arguments... arguments) {
  auto* function = library.function<Result(Arguments...)>(name);
  return function != nullptr && function(arguments...) == kSuccess;
}

// The number that `name` returns through a pointer after `arguments`.
template <typename Number, typename... Arguments>
std::optional<Number> ask(const SharedLibrary& library, const char* name, Arguments... arguments) {
  Number number{};
  if (!call(library, name, arguments..., &number)) return std::nullopt;
  return number;
}

std::string text_of(const SharedLibrary& library, const char* name) {
  std::array<char, 96> text{};
  if (!call(library, name, text.data(), static_cast<unsigned>(text.size()))) return {};
  return text.data();
}

std::vector<GpuProcess> processes_on(const SharedLibrary& library, Device device) {
  constexpr unsigned kMost = 64;
  std::array<ProcessInfo, kMost> found{};
  unsigned count = kMost;
  if (!call(library, "nvmlDeviceGetComputeRunningProcesses_v3", device, &count, found.data())) return {};
  std::vector<GpuProcess> processes;
  for (unsigned i = 0; i < std::min(count, kMost); ++i) {
    GpuProcess process{.pid = found[i].pid, .bytes = std::nullopt};
    if (found[i].bytes != kUnknownBytes) process.bytes = found[i].bytes;
    processes.push_back(process);
  }
  return processes;
}

GpuState look(const SharedLibrary& library, Device device) {
  GpuState gpu;
  std::array<char, 96> text{};
  if (call(library, "nvmlDeviceGetName", device, text.data(), static_cast<unsigned>(text.size())))
    gpu.name = text.data();
  if (const auto place = ask<PciInfo>(library, "nvmlDeviceGetPciInfo_v3", device)) gpu.pci_address = place->address;
  gpu.temperature = ask<unsigned>(library, "nvmlDeviceGetTemperature", device, kTemperatureOfGpu);
  gpu.slowdown_temperature = ask<unsigned>(library, "nvmlDeviceGetTemperatureThreshold", device, kSlowdownThreshold);
  gpu.sm_clock = ask<unsigned>(library, "nvmlDeviceGetClockInfo", device, kSmClock);
  gpu.max_sm_clock = ask<unsigned>(library, "nvmlDeviceGetMaxClockInfo", device, kSmClock);
  gpu.throttle_reasons = ask<unsigned long long>(library, "nvmlDeviceGetCurrentClocksThrottleReasons", device);
  int current = 0, pending = 0;
  if (call(library, "nvmlDeviceGetEccMode", device, &current, &pending)) gpu.ecc = current != 0;
  gpu.uncorrected_errors =
      ask<unsigned long long>(library, "nvmlDeviceGetTotalEccErrors", device, kUncorrected, kVolatile);
  unsigned corrected_rows = 0, uncorrected_rows = 0, waits = 0, failed = 0;
  if (call(library, "nvmlDeviceGetRemappedRows", device, &corrected_rows, &uncorrected_rows, &waits, &failed)) {
    gpu.rows_pending = waits != 0;
    gpu.rows_failed = failed != 0;
  }
  gpu.pcie_width = ask<unsigned>(library, "nvmlDeviceGetCurrPcieLinkWidth", device);
  gpu.max_pcie_width = ask<unsigned>(library, "nvmlDeviceGetMaxPcieLinkWidth", device);
  gpu.pcie_generation = ask<unsigned>(library, "nvmlDeviceGetCurrPcieLinkGeneration", device);
  gpu.max_pcie_generation = ask<unsigned>(library, "nvmlDeviceGetMaxPcieLinkGeneration", device);
  if (const auto memory = ask<Memory>(library, "nvmlDeviceGetMemoryInfo", device)) {
    gpu.total_memory = memory->total;
    gpu.used_memory = memory->used;
  }
  unsigned mig = 0, mig_after_reset = 0;
  if (call(library, "nvmlDeviceGetMigMode", device, &mig, &mig_after_reset)) gpu.mig = mig != 0;
  gpu.processes = processes_on(library, device);
  const auto fabric = ask<FabricInfo>(library, "nvmlDeviceGetGpuFabricInfo", device);
  if (fabric && fabric->state <= static_cast<unsigned char>(GpuFabric::kCompleted)) {
    gpu.fabric = static_cast<GpuFabric>(fabric->state);
    if (gpu.fabric == GpuFabric::kCompleted) gpu.fabric_error = fabric->status;
  }
  return gpu;
}

// Ends NVML's session with the driver.
class Session {
 public:
  explicit Session(const SharedLibrary& library) : library_(library) {}
  ~Session() { call(library_, "nvmlShutdown"); }
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

 private:
  const SharedLibrary& library_;
};

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
  const SharedLibrary library(libraries);
  if (!library) return survey;
  auto* initialize = library.function<Result()>("nvmlInit_v2");
  if (initialize == nullptr) {
    survey.problem = "NVIDIA's management library lacks nvmlInit_v2";
    return survey;
  }
  if (const Result result = initialize(); result != kSuccess) {
    auto* error_string = library.function<const char*(Result)>("nvmlErrorString");
    survey.problem =
        fmt::format("NVIDIA's management library does not start: {}",
                    error_string == nullptr ? fmt::format("error {}", result) : std::string(error_string(result)));
    return survey;
  }
  const Session session(library);
  survey.library = true;
  survey.driver = text_of(library, "nvmlSystemGetDriverVersion");
  survey.cuda_version = ask<int>(library, "nvmlSystemGetCudaDriverVersion_v2").value_or(0);
  const unsigned count = ask<unsigned>(library, "nvmlDeviceGetCount_v2").value_or(0);
  for (unsigned index = 0; index < count; ++index) {
    const auto device = ask<Device>(library, "nvmlDeviceGetHandleByIndex_v2", index);
    // A GPU that has fallen off the bus is counted, but has no handle.
    if (!device) {
      survey.problem = fmt::format("GPU {} does not respond to the driver", index);
      continue;
    }
    survey.gpus.push_back(look(library, *device));
  }
  return survey;
}

}  // namespace mpzero::doctor
