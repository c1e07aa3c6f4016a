#pragma once

#include <string>
#include <vector>

#include "app/gpu/nvml.hpp"
#include "app/machine/gpu_promise.hpp"
#include "base/environment.hpp"

namespace mpzero {

// The GPUs of one machine as its ranks see them: for each local rank the PCI addresses of its CUDA devices, in CUDA's
// order. A rank that sees no GPU has an empty list.
using GpuViews = std::vector<std::vector<std::string>>;

// Chooses the GPU of local rank `local_rank` on `host` and returns its index among the CUDA devices that this rank
// sees: the local rank if all ranks see the same GPUs; 0 if Slurm's --gpus-per-task or --gpu-bind shows different GPUs
// to each rank. Throws UserError if this is not one GPU per rank. `views`: at least one GPU per rank.
int choose_gpu(const GpuViews& views, int local_rank, const std::string& host);

// CUDA's answer on a host.
struct CudaAnswer {
  std::string host;
  int code = 0;              // a cudaError_t
  std::string cuda_error;    // the text of cudaGetErrorString()
  bool driver_found = true;  // NVIDIA's kernel driver
};

// Whether a run will train on the CPU, as far as known before MPI and CUDA start. `requested`: "auto", "cuda" or "cpu".
// `driver_found`: NVIDIA's kernel driver.
bool expects_cpu(const std::string& requested, bool driver_found, const parallel::Environment& environment);

// Why `--device cuda` is not possible on a host, and what to do: one sentence.
std::string why_no_gpu(const CudaAnswer& seen, const parallel::Environment& environment);

// The error for a host whose GPUs do not work, rather than being hidden or not requested: CUDA fails there, or shows
// fewer GPUs than the cluster has assigned to the host, and too few for its ranks. Empty: the host is not at fault.
// `views`: of the host's ranks, of which `local_rank` got the answer `seen`. `others_see_gpus`: a rank of the job sees
// GPUs, on any host.
std::string fault_of_host(const CudaAnswer& seen, const GpuViews& views, int local_rank, bool others_see_gpus,
                          const parallel::Environment& environment);

// The error for a GPU on which CUDA does not initialize.
std::string gpu_does_not_start(const CudaAnswer& seen, const std::string& gpu);

// The error for a GPU that is assigned to this job, but whose memory other processes use. Empty: no GPU is assigned, or
// the memory is free. `gpu`: its PCI address.
std::string memory_of_others(const doctor::GpuSurvey& survey, const std::string& gpu, const std::string& host,
                             const parallel::Environment& environment);

// Throws UserError if the GPU does not support FP8 matmuls, or not with rowwise scaling. `capability`: see
// parallel::GpuProperties.
void check_fp8_gpu(const std::string& gpu, int capability, bool rowwise);
// The same for a GPU by name, e.g. "NVIDIA A100-SXM4-40GB" or "A100". Accepts GPUs that find_gpu_model() does not know.
void check_fp8_gpu(const std::string& gpu, bool rowwise);

// The warning for a run that trains on the CPU although the cluster has assigned GPUs to it, which is rarely intended;
// empty: none. `given`: on that host.
std::string cpu_instead_of_gpus(const GivenGpus& given, const std::string& host);

}  // namespace mpzero
