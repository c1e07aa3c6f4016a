#pragma once

#include <optional>
#include <string>
#include <vector>

#include "app/gpu/nvml.hpp"
#include "app/machine/finding.hpp"
#include "app/machine/system.hpp"

namespace mpzero::doctor {

// Merges the surveys of one host's ranks: Slurm may show each rank only its own GPU. The result has every GPU once, in
// the order of the bus, and the first problem that any rank has met.
GpuSurvey merge_surveys(const std::vector<GpuSurvey>& surveys);

// Checks the GPUs: their number, the driver against the CUDA that mpzero was built with, memory errors, throttling,
// PCIe, use by other processes. `cuda_runtime`: that CUDA, 1000 * major + 10 * minor. `shown`:
// the PCI addresses of the GPUs that CUDA shows to the ranks; std::nullopt: of all. NVML also lists GPUs of other jobs,
// whose memory use is expected.
std::vector<Finding> check_gpus(const System& system, const Job& job, const GpuSurvey& survey, int cuda_runtime,
                                const std::optional<std::vector<std::string>>& shown = std::nullopt);

// Whether the build has kernels for the GPUs that the run is to use (built_with_gpu_kernels()).
Finding check_gpu_kernels(const Job& job, const GpuSurvey& survey, bool built_with_them);

}  // namespace mpzero::doctor
