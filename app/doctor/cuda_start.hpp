#pragma once

#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "app/gpu/nvml.hpp"
#include "app/machine/finding.hpp"
#include "app/machine/system.hpp"

namespace mpzero::doctor {

// State of the CUDA driver library in one process.
struct CudaSurvey {
  std::string library_error;      // error from loading libcuda.so.1; empty if loaded
  std::vector<std::string> gpus;  // PCI addresses of visible GPUs
  std::optional<int> listed;      // number of entries in CUDA_VISIBLE_DEVICES; std::nullopt: unset
  std::string failed_call;        // such as "cuInit"; empty if no call failed
  std::string failed_gpu;         // PCI address of the GPU of the failed call; may be empty
  int error = 0;                  // CUresult
  std::string error_name;         // such as "CUDA_ERROR_SYSTEM_NOT_READY"

  static auto fields(auto& one) {  // base/collectives.hpp
    return std::tie(one.library_error, one.gpus, one.listed, one.failed_call, one.failed_gpu, one.error,
                    one.error_name);
  }
};

// Index of this process among the processes of a host that query CUDA and divide the GPUs among themselves.
struct Asker {
  int index = 0;
  int of = 1;
};

// Initializes CUDA and creates a context on each GPU of this process's share of the visible GPUs, or on all visible
// GPUs if there are fewer GPUs than processes. Uses the first library in `libraries` that can be loaded. Stops at the
// first failed call. This function may hang in the driver.
CudaSurvey survey_cuda(const std::vector<std::string>& libraries, const Asker& asker);

// Returns true if the run needs CUDA on this host: --device cuda is set, the host has GPUs, or the cluster has assigned
// GPUs. Returns false for --device cpu.
bool needs_cuda(const Job& job, const GpuSurvey& gpus);

// Checks that CUDA initializes on all GPUs of a host. `surveys`: one per rank of the host.
Finding check_cuda_start(const Job& job, const GpuSurvey& gpus, const std::vector<CudaSurvey>& surveys);

}  // namespace mpzero::doctor
