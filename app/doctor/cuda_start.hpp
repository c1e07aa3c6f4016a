#pragma once

#include <vector>

#include "app/gpu/nvml.hpp"
#include "app/machine/cuda_driver.hpp"
#include "app/machine/finding.hpp"
#include "app/machine/system.hpp"

namespace mpzero::doctor {

// Whether the run needs CUDA on this host: it is to train on GPUs, or there are some, or Slurm has given some.
bool needs_cuda(const Job& job, const GpuSurvey& gpus);

// Checks that CUDA starts on the GPUs of a host. `surveys`: of the host's ranks.
Finding check_cuda_start(const Job& job, const GpuSurvey& gpus, const std::vector<CudaSurvey>& surveys);

}  // namespace mpzero::doctor
