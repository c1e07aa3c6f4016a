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

// Chooses the GPU of local rank `local_rank` of `host` and returns its index among the CUDA devices that this rank
// sees: the local rank if all ranks see the same GPUs; 0 if Slurm's --gpus-per-task or --gpu-bind shows different GPUs
// to each rank. Throws UserError if that is not one GPU per rank. `views`: at least one GPU for each rank.
int choose_gpu(const GpuViews& views, int local_rank, const std::string& host);

// An answer of CUDA on a host.
struct CudaAnswer {
  std::string host;
  int code = 0;              // a cudaError_t
  std::string cuda_error;    // the text of cudaGetErrorString()
  bool driver_found = true;  // NVIDIA's, in the kernel
};

// Whether a run will train on the CPU, as far as that is known before MPI and CUDA start. `requested`: "auto", "cuda"
// or "cpu". `driver_found`: NVIDIA's, in the kernel.
bool expects_cpu(const std::string& requested, bool driver_found, const parallel::Environment& environment);

// Why `--device cuda` is not possible on a host, and what to do: one sentence.
std::string why_no_gpu(const CudaAnswer& seen, const parallel::Environment& environment);

// The sentence for a host whose GPUs do not work, rather than being hidden or not requested: CUDA fails there, or shows
// fewer GPUs than the cluster has given to the host, and too few for its ranks. Empty: the host is not to blame.
// `views`: of the machine's ranks, of which `local_rank` got the answer `seen`. `others_see_gpus`: a rank of the job
// does, on any machine.
std::string fault_of_host(const CudaAnswer& seen, const GpuViews& views, int local_rank, bool others_see_gpus,
                          const parallel::Environment& environment);

// The sentence for a GPU on which CUDA does not start.
std::string gpu_does_not_start(const CudaAnswer& seen, const std::string& gpu);

// The sentence for a GPU that the cluster has given to this job, and whose memory other processes hold. Empty: it has
// given none, or the memory is free. `gpu`: its PCI address.
std::string memory_of_others(const doctor::GpuSurvey& survey, const std::string& gpu, const std::string& host,
                             const parallel::Environment& environment);

// Throws UserError if the GPU multiplies no FP8, or none with a scale for each row. `capability`: see
// parallel::GpuProperties.
void check_fp8_gpu(const std::string& gpu, int capability, bool rowwise);
// The same of a GPU that is not here, as "NVIDIA A100-SXM4-40GB" or "A100"; nothing is known of GPUs that
// find_gpu_model() does not have.
void check_fp8_gpu(const std::string& gpu, bool rowwise);

// The warning for a run that trains on the CPU although the cluster has given it GPUs, which is rarely intended; empty:
// none. `given`: on that host.
std::string cpu_instead_of_gpus(const GivenGpus& given, const std::string& host);

}  // namespace mpzero
