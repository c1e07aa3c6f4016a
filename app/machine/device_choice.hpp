#pragma once

#include <string>
#include <vector>

#include "base/environment.hpp"

namespace mpzero {

// The GPUs of one machine as its ranks see them: for each local rank the PCI addresses of its CUDA devices, in CUDA's
// order. A rank that sees no GPU has an empty list.
using GpuViews = std::vector<std::vector<std::string>>;

// Chooses the GPU of local rank `local_rank` of `host` and returns its index among the CUDA devices that this rank
// sees: the local rank if all ranks see the same GPUs; 0 if Slurm's --gpus-per-task or --gpu-bind shows different GPUs
// to each rank. Throws UserError if that is not one GPU per rank. `views`: at least one GPU for each rank.
int choose_gpu(const GpuViews& views, int local_rank, const std::string& host);

// What is known when CUDA shows no GPU to a rank.
struct NoGpu {
  std::string host;
  std::string cuda_error;    // the text of cudaGetErrorString()
  bool driver_found = true;  // NVIDIA's, in the kernel
};

// Why `--device cuda` is not possible on a host, and what to do: one sentence.
std::string why_no_gpu(const NoGpu& seen, const parallel::Environment& environment);

// GPUs that Slurm has given to this step on this node; 0: none, or there is no Slurm.
int gpus_from_slurm(const parallel::Environment& environment);

// The warning for a run that trains on the CPU although Slurm has given it GPUs, which is rarely intended; empty: none.
// `promised`: gpus_from_slurm() on that host.
std::string cpu_instead_of_gpus(int promised, const std::string& host);

}  // namespace mpzero
