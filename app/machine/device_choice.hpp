#pragma once

#include <string>
#include <vector>

#include "app/gpu/nvml.hpp"
#include "app/machine/gpu_promise.hpp"
#include "base/environment.hpp"

namespace mpzero {

// The visible GPUs of one host: for each local rank, the PCI addresses of the visible CUDA devices in CUDA's order.
using GpuViews = std::vector<std::vector<std::string>>;

// Returns the index of a rank's GPU among the visible CUDA devices: `local_rank` if all ranks see the same GPUs, or 0
// if each rank sees different GPUs (Slurm's --gpus-per-task or --gpu-bind). Throws UserError if this assignment does
// not give each rank its own GPU. `views`: at least one GPU per rank. `host`: host name for messages.
int choose_gpu(const GpuViews& views, int local_rank, const std::string& host);

// The result of a CUDA call on a host.
struct CudaAnswer {
  std::string host;
  int code = 0;              // a cudaError_t
  std::string cuda_error;    // cudaGetErrorString()
  bool driver_found = true;  // NVIDIA's kernel driver is loaded
};

// Returns true if a run is expected to train on the CPU. Called before MPI and CUDA are initialized. `requested`:
// "auto", "cuda" or "cpu". `driver_found`: true if NVIDIA's kernel driver is loaded.
bool expects_cpu(const std::string& requested, bool driver_found, const parallel::Environment& environment);

// Returns the error message for `--device cuda` on a host without visible GPUs.
std::string why_no_gpu(const CudaAnswer& seen, const parallel::Environment& environment);

// Returns the error message for a host with broken GPUs: CUDA fails, or detects fewer GPUs than the cluster assigned to
// the host and too few for its ranks. Returns an empty string if the host is not at fault, for example if GPUs are
// hidden or were not requested. `seen`: CUDA's result on local rank `local_rank`. `views`: visible GPUs of the host's
// ranks. `others_see_gpus`: true if any rank of the job sees GPUs.
std::string fault_of_host(const CudaAnswer& seen, const GpuViews& views, int local_rank, bool others_see_gpus,
                          const parallel::Environment& environment);

// Returns the error message if CUDA fails to initialize on a GPU.
std::string gpu_does_not_start(const CudaAnswer& seen, const std::string& gpu);

// Returns the error message for a GPU that is assigned to this job while other processes use its memory. Returns an
// empty string if no GPU is assigned or the memory is free. `gpu`: PCI address.
std::string memory_of_others(const doctor::GpuSurvey& survey, const std::string& gpu, const std::string& host,
                             const parallel::Environment& environment);

// Throws UserError if the GPU does not support FP8 matmuls or, with `rowwise`, rowwise scaling. `capability`: see
// parallel::GpuProperties.
void check_fp8_gpu(const std::string& gpu, int capability, bool rowwise);
// Overload that takes the name of a GPU, e.g. "NVIDIA A100-SXM4-40GB" or "A100". Does not throw for names unknown to
// find_gpu_model().
void check_fp8_gpu(const std::string& gpu, bool rowwise);

// Returns a warning if a run trains on the CPU although the cluster has assigned GPUs to the job; empty if no GPUs are
// assigned. `given`: GPUs assigned on `host`.
std::string cpu_instead_of_gpus(const GivenGpus& given, const std::string& host);

}  // namespace mpzero
