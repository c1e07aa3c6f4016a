#pragma once

#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "app/gpu/nvml.hpp"
#include "app/machine/finding.hpp"
#include "app/machine/system.hpp"

namespace mpzero::doctor {

// What CUDA's driver library shows to one process.
struct CudaSurvey {
  std::string library_error;      // why there is no libcuda.so.1; empty: there is
  std::vector<std::string> gpus;  // PCI addresses
  std::optional<int> listed;      // entries of CUDA_VISIBLE_DEVICES; std::nullopt: it is not set
  std::string failed_call;        // "cuInit"; empty: none failed
  std::string failed_gpu;         // the PCI address of the GPU for which it failed; empty: it is for no single GPU
  int error = 0;                  // a CUresult
  std::string error_name;         // "CUDA_ERROR_SYSTEM_NOT_READY"

  static auto fields(auto& one) {  // base/collectives.hpp
    return std::tie(one.library_error, one.gpus, one.listed, one.failed_call, one.failed_gpu, one.error,
                    one.error_name);
  }
};

// The process of a host that asks CUDA: the GPUs are divided among them.
struct Asker {
  int index = 0;  // from 0
  int of = 1;
};

// Initializes CUDA and opens a context on this process's shard of the GPUs that it sees (on all of them if there are
// fewer GPUs than processes), using the first of `libraries` that can be loaded. Stops at the first call that fails.
// CUDA may hang.
CudaSurvey survey_cuda(const std::vector<std::string>& libraries, const Asker& asker);

// Whether the run needs CUDA on this host: it is to train on GPUs, or there are some, or Slurm has given some.
bool needs_cuda(const Job& job, const GpuSurvey& gpus);

// Checks that CUDA starts on the GPUs of a host. `surveys`: of the host's ranks.
Finding check_cuda_start(const Job& job, const GpuSurvey& gpus, const std::vector<CudaSurvey>& surveys);

}  // namespace mpzero::doctor
