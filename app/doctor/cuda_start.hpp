#pragma once

#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "app/gpu/nvml.hpp"
#include "app/machine/finding.hpp"
#include "app/machine/system.hpp"

namespace mpzero::doctor {

// State of CUDA's driver library in one process.
struct CudaSurvey {
  std::string library_error;      // why libcuda.so.1 cannot be loaded; empty: loaded
  std::vector<std::string> gpus;  // PCI addresses
  std::optional<int> listed;      // entries of CUDA_VISIBLE_DEVICES; std::nullopt: unset
  std::string failed_call;        // "cuInit"; empty: none failed
  std::string failed_gpu;         // PCI address of the GPU for which the call failed; empty: no single GPU
  int error = 0;                  // a CUresult
  std::string error_name;         // "CUDA_ERROR_SYSTEM_NOT_READY"

  static auto fields(auto& one) {  // base/collectives.hpp
    return std::tie(one.library_error, one.gpus, one.listed, one.failed_call, one.failed_gpu, one.error,
                    one.error_name);
  }
};

// This process among those of a host that query CUDA. They divide the GPUs.
struct Asker {
  int index = 0;  // from 0
  int of = 1;
};

// Initializes CUDA and opens a context on this process's share of the visible GPUs (on all of them if there are fewer
// GPUs than processes), using the first of `libraries` that can be loaded. Stops at the first call that fails. CUDA may
// hang.
CudaSurvey survey_cuda(const std::vector<std::string>& libraries, const Asker& asker);

// Whether the run needs CUDA on this host: it trains on GPUs, or the host has GPUs, or the cluster has assigned GPUs.
bool needs_cuda(const Job& job, const GpuSurvey& gpus);

// Checks that CUDA initializes on a host's GPUs. `surveys`: of the host's ranks.
Finding check_cuda_start(const Job& job, const GpuSurvey& gpus, const std::vector<CudaSurvey>& surveys);

}  // namespace mpzero::doctor
