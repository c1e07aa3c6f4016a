#include "app/doctor/gpus.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <map>
#include <string>

#include "app/gpu/gpu_readings.hpp"
#include "app/machine/instances.hpp"
#include "parallel/comm/gpu_address.hpp"

namespace mpzero::doctor {
namespace {

namespace fs = std::filesystem;

// NVIDIA GPUs on the PCI bus, with or without a driver.
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

// "GPU 0: TEXT, GPU 2: TEXT" for the GPUs for which `describe` returns text. Empty: for none.
std::string those(const std::vector<GpuState>& gpus, const std::function<std::string(const GpuState&)>& describe) {
  std::string list;
  for (size_t i = 0; i < gpus.size(); ++i) {
    const std::string text = describe(gpus[i]);
    if (!text.empty()) list += fmt::format("{}GPU {}: {}", list.empty() ? "" : ", ", i, text);
  }
  return list;
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
  constexpr const char* kReplace = "reboot or replace the node; `nvidia-smi` and `dmesg | grep -i nvrm` show details";
  if (!survey.problem.empty()) return failure("gpus", survey.problem, kReplace);
  if (!survey.library && std::max(on_bus, expected) > 0) {
    return failure(
        "driver",
        fmt::format(
            "{} GPUs exist, but libnvidia-ml.so.1 cannot be loaded: there is no driver, or none in this container",
            std::max(on_bus, expected)),
        "install NVIDIA's driver, or start the container with its runtime (docker run --gpus all)");
  }
  if (found < expected) {
    return failure("gpus",
                   given > 0 ? fmt::format("{} GPUs, but {} gave {} to the job", found, job.given_gpus.by, expected)
                             : fmt::format("{} GPUs, but a {} has {}", found, type, expected),
                   kReplace);
  }
  // A container or a job's control group may intentionally show only some of them.
  if (found < on_bus && given == 0) {
    return warning("gpus", fmt::format("the driver shows {} GPUs, the PCI bus {}", found, on_bus),
                   "unless this is intended (a container with some of the GPUs), reboot or replace the node");
  }
  if (found == 0 && job.device == "cuda") {
    return failure("no_gpus", "none, but the run is to train on GPUs (--device cuda)",
                   "install NVIDIA's driver, start the container with its runtime (docker run --gpus all), or reboot");
  }
  if (found == 0) return ok("gpus", "none: mpzero trains on the CPU here");
  if (job.local_ranks > found) {
    return failure("ranks_per_gpu", fmt::format("{} ranks share {} GPUs", job.local_ranks, found),
                   "start one rank per GPU");
  }
  std::map<std::string, int> models;
  for (const GpuState& gpu : survey.gpus) ++models[gpu.name];
  std::string list;
  for (const auto& [model, count] : models) list += fmt::format("{}{} x {}", list.empty() ? "" : ", ", count, model);
  if (models.size() > 1) {
    return warning("gpus", list + ": not all the same model",
                   "the slowest GPU sets the pace; leave out those that differ");
  }
  return ok("gpus", list);
}

Finding check_driver(const GpuSurvey& survey, int cuda_runtime) {
  const std::string driver = fmt::format("{}, up to CUDA {}", survey.driver, release_text(survey.cuda_version));
  // From CUDA 11 on, a driver runs every release of its own major version.
  if (survey.cuda_version / 1000 < cuda_runtime / 1000) {
    return failure(
        "driver", fmt::format("{}; mpzero is built with CUDA {}", driver, release_text(cuda_runtime)),
        "update NVIDIA's driver; on a single node, its compatibility package (cuda-compat) in LD_LIBRARY_PATH "
        "is enough");
  }
  return ok("driver", driver);
}

Finding check_memory_errors(const std::vector<GpuState>& gpus) {
  constexpr const char* kCheck = "gpu_memory_errors";
  const std::string broken = those(gpus, [](const GpuState& gpu) -> std::string {
    if (gpu.rows_failed.value_or(false)) return "bad rows can no longer be remapped";
    if (gpu.uncorrected_errors.value_or(0) == 0) return {};
    return fmt::format("{} uncorrected error{}", *gpu.uncorrected_errors, *gpu.uncorrected_errors == 1 ? "" : "s");
  });
  if (!broken.empty()) return failure(kCheck, broken, "reset the GPU or reboot; if it happens again, replace the node");
  const std::string waiting = those(gpus, [](const GpuState& gpu) -> std::string {
    return gpu.rows_pending.value_or(false) ? "bad rows wait to be remapped" : "";
  });
  if (!waiting.empty()) return warning(kCheck, waiting, "reset the GPU (nvidia-smi -r) or reboot before a long run");
  const std::string off =
      those(gpus, [](const GpuState& gpu) -> std::string { return gpu.ecc.value_or(true) ? "" : "ECC is off"; });
  if (!off.empty()) return warning(kCheck, off, "turn it on: nvidia-smi -e 1, then reboot");
  return ok(kCheck, "none");
}

Finding check_throttling(const std::vector<GpuState>& gpus) {
  Status status = Status::kOk;
  const std::string slowed = those(gpus, [&](const GpuState& gpu) {
    std::string reasons;
    for (const ThrottleReason& reason : kThrottleReasons) {
      if (reason.fault == ThrottleFault::kNone || (gpu.throttle_reasons.value_or(0) & reason.bit) == 0) continue;
      status = std::max(status, reason.fault == ThrottleFault::kMajor ? Status::kFailure : Status::kWarning);
      reasons += fmt::format("{}{}", reasons.empty() ? "" : " + ", reason.name);
    }
    if (!reasons.empty() && gpu.sm_clock && gpu.max_sm_clock) {
      reasons += fmt::format(" ({} of {} MHz)", *gpu.sm_clock, *gpu.max_sm_clock);
    }
    return reasons;
  });
  constexpr const char* kRemedy =
      "one slow GPU slows down all ranks: exclude the node and have its cooling and power checked";
  if (status == Status::kFailure) return failure("throttling", slowed, kRemedy);
  if (status == Status::kWarning) return warning("throttling", slowed, kRemedy);
  return ok("throttling", "none");
}

Finding check_pcie(const std::vector<GpuState>& gpus) {
  const std::string narrow = those(gpus, [](const GpuState& gpu) -> std::string {
    if (!gpu.pcie_width || !gpu.max_pcie_width || *gpu.pcie_width >= *gpu.max_pcie_width) return {};
    return fmt::format("x{} of x{}", *gpu.pcie_width, *gpu.max_pcie_width);
  });
  if (!narrow.empty()) {
    return warning("pcie", narrow, "copies to the host are slower in proportion: reboot or replace the node");
  }
  const GpuState& first = gpus.front();
  if (!first.pcie_width) return ok("pcie", "not reported by the driver");
  // An idle link drops to a lower generation.
  return ok("pcie", fmt::format("x{}, generation {} now (lower while idle), {} at most", *first.pcie_width,
                                first.pcie_generation.value_or(0), first.max_pcie_generation.value_or(0)));
}

Finding check_others(const Job& job, const std::vector<GpuState>& gpus,
                     const std::optional<std::vector<std::string>>& shown) {
  const auto is_shown = [&](const GpuState& gpu) {
    return !shown || std::any_of(shown->begin(), shown->end(), [&](const std::string& address) {
      return parallel::same_gpu(address, gpu.pci_address);
    });
  };
  const std::string taken =
      those(gpus, [&](const GpuState& gpu) { return is_shown(gpu) ? memory_in_use(gpu) : std::string(); });
  if (taken.empty()) return ok("gpu_memory", "free");
  constexpr const char* kRemedy = "`nvidia-smi` lists the processes that use it: end them";
  // A cluster gives a GPU to one job at a time, so that processes of an earlier one are left.
  if (job.given_gpus.count > 0) {
    return failure("gpu_memory",
                   fmt::format("{} in use already, of GPUs that {} has given to this job", taken, job.given_gpus.by),
                   kRemedy);
  }
  return warning("gpu_memory", taken + " in use already", kRemedy);
}

}  // namespace

std::vector<Finding> check_gpus(const System& system, const Job& job, const GpuSurvey& survey, int cuda_runtime,
                                const std::optional<std::vector<std::string>>& shown) {
  if (job.device == "cpu") return {ok("gpus", "not checked: the run is to train on the CPU (--device cpu)")};
  std::vector<Finding> findings = {check_count(system, job, survey)};
  if (survey.gpus.empty()) return findings;
  findings.push_back(check_driver(survey, cuda_runtime));
  findings.push_back(check_memory_errors(survey.gpus));
  findings.push_back(check_throttling(survey.gpus));
  findings.push_back(check_pcie(survey.gpus));
  findings.push_back(check_others(job, survey.gpus, shown));
  return findings;
}

Finding check_gpu_kernels(const Job& job, const GpuSurvey& survey, bool built_with_them) {
  constexpr const char* kCheck = "gpu_kernels";
  if (built_with_them) return ok(kCheck, "built");
  if (job.device == "cpu" || survey.gpus.empty()) return ok(kCheck, "not built, and not needed on the CPU");
  return failure(kCheck, "not built: the machine that built mpzero had no GPU",
                 "build them: ./train-singlenode.sh --build-only on a machine with GPUs, or anywhere with "
                 "MPZERO_GPU_ARCHITECTURES=all");
}

}  // namespace mpzero::doctor
