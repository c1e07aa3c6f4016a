#include "app/doctor/gpus.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <map>
#include <span>
#include <string>

#include "app/gpu/gpu_readings.hpp"
#include "app/machine/instances.hpp"
#include "base/words.hpp"
#include "parallel/comm/gpu_address.hpp"

namespace mpzero::doctor {
namespace {

namespace fs = std::filesystem;

// Returns the number of NVIDIA GPUs on the PCI bus, independent of the driver.
int gpus_on_bus(const fs::path& root) {
  int count = 0;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(root / "sys/bus/pci/devices", error)) {
    const std::string kind = read_line(entry.path() / "class").value_or("");
    const bool display = kind.rfind("0x0300", 0) == 0 || kind.rfind("0x0302", 0) == 0;
    if (display && read_line(entry.path() / "vendor") == "0x10de") ++count;
  }
  return count;
}

// A problem of one GPU; status kOk means no problem.
struct Trouble {
  Status status = Status::kOk;
  std::string seen;
  std::string remedy = {};  // empty: remedy of the check
};

// A check for each GPU.
struct GpuCheck {
  Check check;
  const char* fine;
  std::function<Trouble(const GpuState&)> look;
};

// Returns a finding with all problems, "GPU 0: TEXT, GPU 2: TEXT", and the remedy of the most severe problem.
Finding look_at_all(const GpuCheck& check, const std::vector<GpuState>& gpus) {
  Trouble worst;
  std::string list;
  for (size_t i = 0; i < gpus.size(); ++i) {
    const Trouble trouble = check.look(gpus[i]);
    if (trouble.status == Status::kOk) continue;
    list += fmt::format("{}GPU {}: {}", list.empty() ? "" : ", ", i, trouble.seen);
    if (trouble.status > worst.status) worst = trouble;
  }
  if (worst.status == Status::kOk) return ok(check.check, check.fine);
  return worst.status == Status::kFailure ? failure(check.check, list, worst.remedy)
                                          : warning(check.check, list, worst.remedy);
}

// Treats a GPU without an address as known, because the GPU may be identical to a known GPU.
bool holds(const std::vector<GpuState>& gpus, const GpuState& gpu) {
  return gpu.pci_address.empty() || std::any_of(gpus.begin(), gpus.end(), [&](const GpuState& one) {
           return parallel::same_gpu(one.pci_address, gpu.pci_address);
         });
}

std::string release_text(int version) { return fmt::format("{}.{}", version / 1000, version % 1000 / 10); }

Finding check_count(const System& system, const Job& job, const GpuSurvey& survey) {
  const int found = static_cast<int>(survey.gpus.size());
  const std::string type = instance_type(system);
  const auto instance = find_instance(type);
  const int on_bus = gpus_on_bus(system.root);
  const int of_type = instance ? instance->gpus : 0;
  const int given = job.given_gpus.count;
  const int expected = given > 0 ? given : of_type;
  if (!survey.problem.empty()) return failure("gpus", survey.problem);
  if (!survey.library && std::max(on_bus, expected) > 0) {
    return failure("driver", fmt::format("the host has {}, but libnvidia-ml.so.1 cannot be loaded: the driver is "
                                         "not installed, or not in this container",
                                         counted(std::max(on_bus, expected), "GPU")));
  }
  if (found < expected) {
    return failure(
        "gpus", given > 0 ? fmt::format("the driver lists {}, but {} assigned {} to the job", counted(found, "GPU"),
                                        job.given_gpus.by, expected)
                          : fmt::format("the driver lists {}, but a {} has {}", counted(found, "GPU"), type, expected));
  }
  // A container or the job's cgroup may intentionally show only some GPUs.
  if (found < on_bus && given == 0) {
    return warning("gpus", fmt::format("the driver reports {}, but the PCI bus has {}", counted(found, "GPU"), on_bus),
                   "reboot or replace the node, unless the container is intended to have only some of the GPUs");
  }
  if (found == 0 && job.device == "cuda") {
    return failure("driver", "--device cuda is set, but there is no GPU");
  }
  if (found == 0) return ok("gpus", "no GPUs; mpzero trains on the CPU");
  if (job.local_ranks > found) {
    return failure("ranks_per_gpu",
                   fmt::format("{} share {}", counted(job.local_ranks, "rank"), counted(found, "GPU")));
  }
  std::map<std::string, int> models;
  for (const GpuState& gpu : survey.gpus) ++models[gpu.name];
  std::string list;
  for (const auto& [model, count] : models) list += fmt::format("{}{} x {}", list.empty() ? "" : ", ", count, model);
  if (models.size() > 1) {
    return warning("gpus", list + ": different models", "use GPUs of the same model; the slowest GPU limits all ranks");
  }
  return ok("gpus", list);
}

Finding check_driver(const GpuSurvey& survey, int cuda_runtime) {
  const std::string driver = fmt::format("{}, up to CUDA {}", survey.driver, release_text(survey.cuda_version));
  // Since CUDA 11, a driver supports all CUDA releases of the same major version.
  if (survey.cuda_version / 1000 < cuda_runtime / 1000) {
    return failure("driver", fmt::format("{}; mpzero is built with CUDA {}", driver, release_text(cuda_runtime)),
                   "update NVIDIA's driver or, on a single node, add cuda-compat to LD_LIBRARY_PATH");
  }
  return ok("driver", driver);
}

Trouble memory_errors(const GpuState& gpu) {
  constexpr const char* kReset = "reset the GPU or reboot; if the error recurs, replace the node";
  if (gpu.rows_failed.value_or(false)) return {Status::kFailure, "row remapping has failed", kReset};
  if (const uint64_t errors = gpu.uncorrected_errors.value_or(0); errors > 0) {
    return {Status::kFailure, fmt::format("{} uncorrected error{}", errors, errors == 1 ? "" : "s"), kReset};
  }
  if (gpu.rows_pending.value_or(false)) {
    return {Status::kWarning, "row remapping is pending", "reset the GPU (nvidia-smi -r) or reboot before a long run"};
  }
  if (!gpu.ecc.value_or(true)) return {Status::kWarning, "ECC is off", "enable ECC (nvidia-smi -e 1) and reboot"};
  return {};
}

Trouble throttling(const GpuState& gpu) {
  Trouble trouble;
  for (const ThrottleReason& reason : kThrottleReasons) {
    if (reason.fault == ThrottleFault::kNone || (gpu.throttle_reasons.value_or(0) & reason.bit) == 0) continue;
    trouble.status =
        std::max(trouble.status, reason.fault == ThrottleFault::kMajor ? Status::kFailure : Status::kWarning);
    trouble.seen += fmt::format("{}{}", trouble.seen.empty() ? "" : " + ", reason.name);
  }
  if (gpu.sm_clock && gpu.max_sm_clock)
    trouble.seen += fmt::format(" ({} of {} MHz)", *gpu.sm_clock, *gpu.max_sm_clock);
  return trouble;
}

}  // namespace

GpuSurvey merge_surveys(const std::vector<GpuSurvey>& surveys) {
  GpuSurvey merged = surveys.front();
  for (const GpuSurvey& survey : std::span(surveys).subspan(1)) {
    if (merged.problem.empty()) merged.problem = survey.problem;
    for (const GpuState& gpu : survey.gpus) {
      if (!holds(merged.gpus, gpu)) merged.gpus.push_back(gpu);
    }
  }
  std::stable_sort(merged.gpus.begin(), merged.gpus.end(),
                   [](const GpuState& a, const GpuState& b) { return a.pci_address < b.pci_address; });
  return merged;
}

std::vector<Finding> check_gpus(const System& system, const Job& job, const GpuSurvey& survey, int cuda_runtime,
                                const std::optional<std::vector<std::string>>& shown) {
  if (job.device == "cpu") return {ok("gpus", "not checked: --device cpu")};
  std::vector<Finding> findings = {check_count(system, job, survey)};
  if (survey.gpus.empty()) return findings;
  findings.push_back(check_driver(survey, cuda_runtime));
  const auto taken = [&](const GpuState& gpu) -> Trouble {
    const bool is_shown = !shown || std::any_of(shown->begin(), shown->end(), [&](const std::string& address) {
      return parallel::same_gpu(address, gpu.pci_address);
    });
    const std::string used = is_shown ? memory_in_use(gpu) : "";
    if (used.empty()) return {};
    // A cluster assigns a GPU to only one job at a time, so these processes belong to an earlier job.
    return job.given_gpus.count > 0
               ? Trouble{Status::kFailure,
                         fmt::format("{} in use on a GPU that {} assigned to this job", used, job.given_gpus.by)}
               : Trouble{Status::kWarning, used + " already in use"};
  };
  const GpuCheck checks[] = {
      {"gpu_memory_errors", "none", memory_errors}, {"throttling", "none", throttling}, {"gpu_memory", "free", taken}};
  for (const GpuCheck& check : checks) findings.push_back(look_at_all(check, survey.gpus));
  return findings;
}

Finding check_gpu_kernels(const Job& job, const GpuSurvey& survey, bool built_with_them) {
  constexpr const char* kCheck = "gpu_kernels";
  if (built_with_them) return ok(kCheck, "built");
  if (job.device == "cpu" || survey.gpus.empty()) return ok(kCheck, "not built; not required on the CPU");
  return failure(kCheck, "not built: no GPU on the build machine");
}

}  // namespace mpzero::doctor
