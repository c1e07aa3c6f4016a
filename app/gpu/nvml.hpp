#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

namespace mpzero::doctor {

// A process that uses memory of a GPU.
struct GpuProcess {
  unsigned pid = 0;               // the host's, not a container's
  std::optional<uint64_t> bytes;  // empty: not reported
};

// State of one GPU as reported by the driver. An optional is empty if this GPU or driver does not report the value.
struct GpuState {
  std::string name;
  std::string pci_address;                         // "00000000:10:1C.0"; empty: not reported
  std::optional<unsigned> temperature;             // degrees Celsius
  std::optional<unsigned> sm_clock, max_sm_clock;  // MHz
  std::optional<uint64_t> throttle_reasons;        // bits of nvmlClocksThrottleReasons
  std::optional<bool> ecc;                         // on
  std::optional<uint64_t> uncorrected_errors;      // since the driver was loaded
  std::optional<bool> rows_pending,
      rows_failed;  // remapping of bad memory rows needs a reset; has failed
  std::optional<unsigned> pcie_width, max_pcie_width;
  std::optional<uint64_t> total_memory;  // bytes
  std::optional<uint64_t> used_memory;   // bytes, of all processes
  std::optional<bool> mig;               // the GPU is split into instances, which several jobs may share
  std::vector<GpuProcess> processes;     // those with a CUDA context
  std::string nvlink_domain = {};        // multi-host domain of this GPU; empty: none

  static auto fields(auto& gpu) {  // base/collectives.hpp
    return std::tie(gpu.name, gpu.pci_address, gpu.temperature, gpu.sm_clock, gpu.max_sm_clock, gpu.throttle_reasons,
                    gpu.ecc, gpu.uncorrected_errors, gpu.rows_pending, gpu.rows_failed, gpu.pcie_width,
                    gpu.max_pcie_width, gpu.total_memory, gpu.used_memory, gpu.mig, gpu.processes, gpu.nvlink_domain);
  }
};

struct GpuSurvey {
  bool library = false;  // NVIDIA's management library is installed and works
  std::string problem;   // why it does not work; empty if the library is only missing
  std::string driver;    // "580.95.05"
  int cuda_version = 0;  // the newest CUDA that the driver supports, 1000 * major + 10 * minor
  std::vector<GpuState> gpus;

  static auto fields(auto& survey) {
    return std::tie(survey.library, survey.problem, survey.driver, survey.cuda_version, survey.gpus);
  }
};

// "7.0 GiB (pid 4242: 6.5 GiB)": used memory of a GPU, and the processes that use it. Empty: less than 2 GiB, which the
// driver and idle contexts may use, or a GPU with MIG, whose other instances may belong to other jobs.
std::string memory_in_use(const GpuState& gpu);

// Queries NVIDIA's management library (NVML), the first of `libraries` that can be loaded. Never throws: values that
// cannot be queried stay empty.
GpuSurvey survey_gpus(const std::vector<std::string>& libraries);

}  // namespace mpzero::doctor
