#include "app/machine/device_choice.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <cstdlib>
#include <set>

#include "base/error.hpp"

namespace mpzero {
namespace {

// Whether no two ranks see the same GPU.
bool disjoint(const GpuViews& views) {
  std::set<std::string> seen;
  for (const auto& view : views) {
    for (const std::string& address : std::set<std::string>(view.begin(), view.end())) {
      if (!seen.insert(address).second) return false;
    }
  }
  return true;
}

bool all_alike(const GpuViews& views) {
  return std::all_of(views.begin(), views.end(), [&](const auto& view) { return view == views.front(); });
}

std::string gpus(size_t count) { return count == 1 ? "one GPU" : fmt::format("{} GPUs", count); }

}  // namespace

int choose_gpu(const GpuViews& views, int local_rank, const std::string& host) {
  if (views.size() > 1 && disjoint(views)) return 0;
  std::set<std::string> all;
  for (const auto& view : views) all.insert(view.begin(), view.end());
  if (all.size() < views.size()) {
    throw_user_error(
        "{} ranks on {} share {} ({}; MIG instances of one GPU count as one GPU for NCCL): start one rank per GPU, "
        "show each rank its own GPU (srun --gpus-per-task=1) or all GPUs (CUDA_VISIBLE_DEVICES), or use --device cpu",
        views.size(), host, gpus(all.size()), fmt::join(all, ", "));
  }
  if (!all_alike(views)) {
    throw_user_error(
        "the ranks on {} see different GPUs, some of them in common: show all GPUs to every rank, or each rank its own "
        "(srun --gpus-per-task=1, or CUDA_VISIBLE_DEVICES)",
        host);
  }
  return local_rank;
}

std::string why_no_gpu(const NoGpu& seen, const parallel::Environment& environment) {
  const auto visible = environment("CUDA_VISIBLE_DEVICES");
  const std::string shown =
      visible ? fmt::format("CUDA_VISIBLE_DEVICES={}", *visible) : "CUDA_VISIBLE_DEVICES is unset";
  const std::string start =
      fmt::format("--device cuda: CUDA shows no GPU on {} ({}; {})", seen.host, seen.cuda_error, shown);
  if (environment("SLURM_JOB_ID") && gpus_from_slurm(environment) == 0) {
    return start +
           ": Slurm has given this step no GPU there; request GPUs with sbatch --gpus-per-node=N (srun accepts it "
           "too), or use --device cpu";
  }
  if (!seen.driver_found) {
    return start +
           ": NVIDIA's driver is not loaded there; install it, start a container with its runtime (docker run --gpus "
           "all), or use --device cpu";
  }
  if (visible) return start + ": the driver is loaded, so the variable hides its GPUs; unset it, or list GPUs in it";
  return start + ": the driver is loaded; `nvidia-smi` shows what is wrong with its GPUs";
}

int gpus_from_slurm(const parallel::Environment& environment) {
  const auto gpus = environment("SLURM_GPUS_ON_NODE");
  return gpus ? std::max(0, std::atoi(gpus->c_str())) : 0;
}

std::string cpu_instead_of_gpus(int promised, const std::string& host) {
  if (promised == 0) return "";
  return fmt::format(
      "training on the CPU, although Slurm has given this job {} on {} (SLURM_GPUS_ON_NODE={}): CUDA shows none; "
      "--device cuda ends the run instead and reports the reason; use --device cpu if this is intended",
      gpus(static_cast<size_t>(promised)), host, promised);
}

}  // namespace mpzero
