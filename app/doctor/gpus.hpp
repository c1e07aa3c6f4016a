#pragma once

#include <optional>
#include <string>
#include <vector>

#include "app/gpu/nvml.hpp"
#include "app/machine/finding.hpp"
#include "app/machine/system.hpp"

namespace mpzero::doctor {

// Merges the surveys of one host's ranks: Slurm may show each rank only its own GPU. The result contains every GPU
// once, in bus order, and the first problem of any rank.
GpuSurvey merge_surveys(const std::vector<GpuSurvey>& surveys);

// Checks the GPUs: their number, the driver against the CUDA that mpzero was built with, memory errors, throttling,
// PCIe, use by other processes. `cuda_runtime`: the CUDA version of the build, 1000 * major + 10 * minor. `shown`: PCI
// addresses of the GPUs that CUDA shows to the ranks; std::nullopt: all. NVML also lists GPUs of other jobs, whose
// memory use is expected.
std::vector<Finding> check_gpus(const System& system, const Job& job, const GpuSurvey& survey, int cuda_runtime,
                                const std::optional<std::vector<std::string>>& shown = std::nullopt);

// Checks that the build has kernels for the run's GPUs (built_with_gpu_kernels()).
Finding check_gpu_kernels(const Job& job, const GpuSurvey& survey, bool built_with_them);

}  // namespace mpzero::doctor
