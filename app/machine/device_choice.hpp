#pragma once

#include <string>
#include <vector>

#include "base/environment.hpp"

namespace mpzero {

// The GPUs of one machine as its ranks see them: for each local rank the PCI addresses of its CUDA devices, in CUDA's
// order. One that sees none has an empty list.
using GpuViews = std::vector<std::vector<std::string>>;

// The index, among the CUDA devices that local rank `local_rank` of `host` sees, of the one it trains on: its local
// rank where all see the same ones; the first where Slurm's --gpus-per-task or --gpu-bind shows others to each rank.
// Throws UserError where that is not one GPU a rank. `views`: with at least one GPU for each rank.
int choose_gpu(const GpuViews& views, int local_rank, const std::string& host);

// What is known where CUDA shows no GPU to a rank.
struct NoGpu {
  std::string host;
  std::string cuda_says;        // in the words of cudaGetErrorString()
  bool driver_is_there = true;  // NVIDIA's, in the kernel
};

// Why `--device cuda` cannot be had on a host, and what to do: one sentence.
std::string why_no_gpu(const NoGpu& seen, const parallel::Environment& environment);

// GPUs that Slurm has given to this step on this node; 0: none, or there is no Slurm.
int gpus_from_slurm(const parallel::Environment& environment);

// A run that trains on the CPU although it has GPUs by its own account is rarely meant: the warning of it, or nothing.
// `promised`: gpus_from_slurm() on the host of that name.
std::string cpu_instead_of_gpus(int promised, const std::string& host);

}  // namespace mpzero
