#include "app/machine/device_choice.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "app/gpu/gpu_models.hpp"
#include "app/machine/cuda_error.hpp"
#include "app/machine/gpu_promise.hpp"
#include "base/error.hpp"
#include "parallel/comm/gpu_address.hpp"

namespace mpzero {
namespace {

// Returns true if no GPU is visible to two ranks.
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

// Returns "CUDA_VISIBLE_DEVICES=0,1" or "CUDA_VISIBLE_DEVICES is unset".
std::string visible_devices(const parallel::Environment& environment) {
  const auto visible = environment("CUDA_VISIBLE_DEVICES");
  return visible ? fmt::format("CUDA_VISIBLE_DEVICES={}", *visible) : "CUDA_VISIBLE_DEVICES is unset";
}

std::set<std::string> all_in(const GpuViews& views) {
  std::set<std::string> all;
  for (const auto& view : views) all.insert(view.begin(), view.end());
  return all;
}

// Returns ": CAUSE; REMEDY" for a CUDA error.
std::string explained(int error) {
  const CudaErrorCause why = explain_cuda_error(error);
  return why.cause.empty() ? ": " + why.remedy : fmt::format(": {}; {}", why.cause, why.remedy);
}

std::string gpus(size_t count) { return count == 1 ? "one GPU" : fmt::format("{} GPUs", count); }

}  // namespace

int choose_gpu(const GpuViews& views, int local_rank, const std::string& host) {
  if (views.size() > 1 && disjoint(views)) return 0;
  const std::set<std::string> all = all_in(views);
  if (all.size() < views.size()) {
    throw_user_error(
        "{} ranks on {} share {} ({}; NCCL counts MIG instances of a GPU as one GPU); start one rank per GPU, make "
        "one GPU (srun --gpus-per-task=1) or all GPUs (CUDA_VISIBLE_DEVICES) visible to each rank, or use --device cpu",
        views.size(), host, gpus(all.size()), fmt::join(all, ", "));
  }
  if (!all_alike(views)) {
    throw_user_error(
        "the ranks on {} see different but overlapping GPUs; make all GPUs visible to every rank, or a separate GPU to "
        "each rank (srun --gpus-per-task=1 or CUDA_VISIBLE_DEVICES)",
        host);
  }
  return local_rank;
}

bool expects_cpu(const std::string& requested, bool driver_found, const parallel::Environment& environment) {
  if (requested != "auto") return requested == "cpu";
  return !driver_found || listed_gpus(environment) == 0;
}

std::string why_no_gpu(const CudaAnswer& seen, const parallel::Environment& environment) {
  const auto visible = environment("CUDA_VISIBLE_DEVICES");
  const std::string start = fmt::format("--device cuda: CUDA detects no GPU on {} ({}; {})", seen.host, seen.cuda_error,
                                        visible_devices(environment));
  const bool has_none = given_gpus(environment).count == 0;
  if (environment("SLURM_JOB_ID") && has_none) {
    return start +
           ": Slurm assigned no GPU to this step; request GPUs with --gpus-per-node=N (sbatch and srun), or use "
           "--device cpu";
  }
  if (environment("MPZERO_GPUS") && has_none) {
    return start +
           ": the TrainJob requests no GPU (MPZERO_GPUS=0); render it for an instance with GPUs, or use --device cpu";
  }
  if (!seen.driver_found) {
    return start +
           ": NVIDIA's driver is not loaded; install it, start the container with NVIDIA's runtime (docker run --gpus "
           "all), or use --device cpu";
  }
  if (visible) {
    return start +
           ": the driver is loaded, but CUDA_VISIBLE_DEVICES hides all GPUs; unset the variable, or add GPUs to it";
  }
  return start + ": the driver is loaded; check the GPUs with `nvidia-smi`";
}

std::string fault_of_host(const CudaAnswer& seen, const GpuViews& views, int local_rank, bool others_see_gpus,
                          const parallel::Environment& environment) {
  const GivenGpus of_cluster = given_gpus(environment);
  const auto promised = static_cast<size_t>(of_cluster.count);
  const auto listed = static_cast<size_t>(listed_gpus(environment).value_or(static_cast<int>(promised)));
  const size_t expected = std::min(promised, listed);
  const std::vector<std::string>& view = views[static_cast<size_t>(local_rank)];
  if (view.empty()) {
    // A container without the driver's libraries affects all hosts in the same way.
    const bool without_libraries = seen.driver_found && seen.code == cuda_error::kInsufficientDriver;
    if (!is_fault_of_host(seen.code) && (expected == 0 || (without_libraries && !others_see_gpus))) return {};
    const std::string given =
        promised == 0 ? "" : fmt::format(" to which {} assigned {}", of_cluster.by, gpus(promised));
    const std::string start =
        fmt::format("CUDA detects no GPU on {}{} (error {}, {}; {})", seen.host, given.empty() ? "" : "," + given,
                    seen.code, seen.cuda_error, visible_devices(environment));
    if (seen.driver_found || is_fault_of_host(seen.code)) return start + explained(seen.code);
    return start + ": NVIDIA's driver is not loaded; load it, or replace the node";
  }
  if (view.size() >= expected || all_in(views).size() >= views.size()) return {};
  return fmt::format("CUDA detects {} of the {} GPUs that {} assigned to {}, too few for its {} ranks{}", view.size(),
                     expected, of_cluster.by, seen.host, views.size(), explained(seen.code));
}

std::string gpu_does_not_start(const CudaAnswer& seen, const std::string& gpu) {
  return fmt::format("CUDA fails to initialize on GPU {} of {} (error {}, {}){}", gpu, seen.host, seen.code,
                     seen.cuda_error, explained(seen.code));
}

std::string memory_of_others(const doctor::GpuSurvey& survey, const std::string& gpu, const std::string& host,
                             const parallel::Environment& environment) {
  const GivenGpus given = given_gpus(environment);
  if (given.count == 0) return {};
  for (const doctor::GpuState& one : survey.gpus) {
    if (!parallel::same_gpu(one.pci_address, gpu)) continue;
    const std::string used = doctor::memory_in_use(one);
    if (used.empty()) return {};
    return fmt::format(
        "other processes use {} of GPU {} of {}, which {} assigned to this job; stop them (`nvidia-smi` lists them), "
        "or exclude the node",
        used, gpu, host, given.by);
  }
  return {};
}

void check_fp8_gpu(const std::string& gpu, int capability, bool rowwise) {
  constexpr int kFirst = 89, kRowwise = 90;
  if (capability >= kFirst && capability != kRowwise && rowwise) {
    throw_user_error(
        "--fp8 rowwise (fp8.recipe): {} has compute capability {}.{}, but cuBLASLt supports rowwise scaling only on "
        "9.0 (H100, H200); use tensorwise.",
        gpu, capability / 10, capability % 10);
  }
  if (capability >= kFirst) return;
  throw_user_error(
      "--fp8 (fp8.enabled): {} has compute capability {}.{}, but FP8 needs 8.9 (L40S, L4), 9.0 (H100, H200) or later; "
      "train in bf16 or use a different GPU.",
      gpu, capability / 10, capability % 10);
}

void check_fp8_gpu(const std::string& gpu, bool rowwise) {
  if (const GpuModel* const model = find_gpu_model(gpu)) check_fp8_gpu(gpu, model->capability, rowwise);
}

std::string cpu_instead_of_gpus(const GivenGpus& given, const std::string& host) {
  if (given.count == 0) return "";
  return fmt::format(
      "training on the CPU although {} assigned this job {} on {} ({}={}): CUDA detects no GPU; pass --device cuda to "
      "turn this warning into an error, or --device cpu to suppress it",
      given.by, gpus(static_cast<size_t>(given.count)), host, given.where, given.count);
}

}  // namespace mpzero
