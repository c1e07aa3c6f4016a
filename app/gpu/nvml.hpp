#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

namespace mpzero::doctor {

// A process that uses GPU memory.
struct GpuProcess {
  unsigned pid = 0;               // in the host's PID namespace
  std::optional<uint64_t> bytes;  // empty: not reported
};

// State of one GPU according to the driver. Optional values are empty if the GPU or the driver does not report them.
struct GpuState {
  std::string name;
  std::string pci_address;                         // "00000000:10:1C.0"; empty: not reported
  std::optional<unsigned> temperature;             // degrees Celsius
  std::optional<unsigned> sm_clock, max_sm_clock;  // MHz
  std::optional<uint64_t> throttle_reasons;        // bits of nvmlClocksThrottleReasons
  std::optional<bool> ecc;                         // ECC is enabled
  std::optional<uint64_t> uncorrected_errors;      // ECC errors since the driver was loaded
  std::optional<bool> rows_pending,
      rows_failed;                       // row remapping is pending until a reset; row remapping has failed
  std::optional<uint64_t> total_memory;  // bytes
  std::optional<uint64_t> used_memory;   // bytes, of all processes
  std::optional<bool> mig;               // MIG mode: several jobs may share the GPU
  std::vector<GpuProcess> processes;     // processes with a CUDA context
  std::string nvlink_domain = {};        // multi-host NVLink domain; empty: none

  static auto fields(auto& gpu) {  // base/collectives.hpp
    return std::tie(gpu.name, gpu.pci_address, gpu.temperature, gpu.sm_clock, gpu.max_sm_clock, gpu.throttle_reasons,
                    gpu.ecc, gpu.uncorrected_errors, gpu.rows_pending, gpu.rows_failed, gpu.total_memory,
                    gpu.used_memory, gpu.mig, gpu.processes, gpu.nvlink_domain);
  }
};

struct GpuSurvey {
  bool library = false;  // NVML is installed and initialized
  std::string problem;   // error message; empty if the library is not installed
  std::string driver;    // "580.95.05"
  int cuda_version = 0;  // latest CUDA version supported by the driver, 1000 * major + 10 * minor
  std::vector<GpuState> gpus;

  static auto fields(auto& survey) {
    return std::tie(survey.library, survey.problem, survey.driver, survey.cuda_version, survey.gpus);
  }
};

// Returns the used memory of a GPU and its processes: "7.0 GiB (pid 4242: 6.5 GiB)". Returns an empty string below 2
// GiB, because the driver and idle contexts use memory, and in MIG mode, because other instances of the GPU may belong
// to other jobs.
std::string memory_in_use(const GpuState& gpu);

// Queries NVIDIA's management library (NVML). Uses the first library in `libraries` that can be loaded. Never throws;
// values that cannot be queried remain empty.
GpuSurvey survey_gpus(const std::vector<std::string>& libraries);

}  // namespace mpzero::doctor
