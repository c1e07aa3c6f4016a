#pragma once

#include <optional>
#include <string>
#include <vector>

#include "app/gpu/nvml.hpp"
#include "app/machine/finding.hpp"
#include "app/machine/system.hpp"

namespace mpzero::doctor {

// Merges the surveys of all ranks of a host, because Slurm may show each rank only its own GPU. The result contains
// each GPU once, ordered by PCI address, and the first problem that any rank reported.
GpuSurvey merge_surveys(const std::vector<GpuSurvey>& surveys);

// Checks the number of GPUs, the driver version, memory errors, throttling, and memory use by other processes.
// `cuda_runtime`: CUDA version of the build, 1000 * major + 10 * minor. `shown`: PCI addresses of the GPUs that are
// visible to the ranks; std::nullopt: all. Memory use is checked only on the GPUs in `shown`, because NVML also lists
// the GPUs of other jobs.
std::vector<Finding> check_gpus(const System& system, const Job& job, const GpuSurvey& survey, int cuda_runtime,
                                const std::optional<std::vector<std::string>>& shown = std::nullopt);

// Checks that mpzero was built with GPU kernels if the run uses GPUs.
Finding check_gpu_kernels(const Job& job, const GpuSurvey& survey, bool built_with_them);

}  // namespace mpzero::doctor
