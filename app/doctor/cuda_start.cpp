#include "app/doctor/cuda_start.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <set>
#include <string>

#include "app/gpu/shared_library.hpp"
#include "app/machine/cuda_error.hpp"
#include "app/machine/gpu_promise.hpp"
#include "base/environment.hpp"

namespace mpzero::doctor {
namespace {

// Types and values of the CUDA driver API: https://docs.nvidia.com/cuda/cuda-driver-api
using Result = int;
using Device = int;
constexpr Result kSuccess = 0, kNotFound = 500;

// Calls functions of the CUDA driver API and records the last failed call.
class Driver {
 public:
  Driver(const SharedLibrary& library, CudaSurvey& survey) : library_(library), survey_(survey) {}

  template <typename... Arguments>
  bool call(const char* name, Arguments... arguments) {
    auto* function = library_.function<Result(Arguments...)>(name);
    survey_.error = function == nullptr ? kNotFound : function(arguments...);
    if (survey_.error == kSuccess) return true;
    survey_.failed_call = name;
    auto* name_of = library_.function<Result(Result, const char**)>("cuGetErrorName");
    const char* text = nullptr;
    if (name_of != nullptr && name_of(survey_.error, &text) == kSuccess && text != nullptr) survey_.error_name = text;
    return false;
  }

  // Collects the PCI addresses of all devices.
  bool list() {
    int count = 0;
    if (!call("cuDeviceGetCount", &count)) return false;
    for (Device device = 0; device < count; ++device) {
      std::array<char, 32> address{};
      if (!call("cuDeviceGetPCIBusId", address.data(), static_cast<int>(address.size()), device)) return false;
      survey_.gpus.emplace_back(address.data());
    }
    return true;
  }

  bool open(Device device) {
    void* context = nullptr;
    if (call("cuDevicePrimaryCtxRetain", &context, device)) return call("cuDevicePrimaryCtxRelease_v2", device);
    survey_.failed_gpu = survey_.gpus[static_cast<size_t>(device)];
    return false;
  }

 private:
  const SharedLibrary& library_;
  CudaSurvey& survey_;
};

// Returns the finding for a failed call.
Finding failed_call(const CudaSurvey& survey) {
  const CudaErrorCause why = explain_cuda_error(survey.error);
  const std::string where = survey.failed_gpu.empty() ? "" : " for GPU " + survey.failed_gpu;
  const std::string error = survey.error_name.empty() ? fmt::format("error {}", survey.error)
                                                      : fmt::format("{} ({})", survey.error_name, survey.error);
  return failure(
      "cuda",
      fmt::format("{} fails{}: {}{}", survey.failed_call, where, error, why.cause.empty() ? "" : ": " + why.cause),
      why.remedy);
}

// Returns true if a rank sees fewer GPUs than the cluster assigned and CUDA_VISIBLE_DEVICES lists.
bool is_short(const CudaSurvey& survey, int allotted) {
  return static_cast<int>(survey.gpus.size()) < std::min(allotted, survey.listed.value_or(allotted));
}

Finding check_start(const Job& job, const std::vector<CudaSurvey>& surveys) {
  const int given = job.given_gpus.count;
  std::set<std::string> all;
  for (const CudaSurvey& survey : surveys) {
    if (survey.error == cuda_error::kNoDevice && survey.listed == 0 && job.device != "cuda") {
      return ok("cuda", "not initialized: CUDA_VISIBLE_DEVICES hides all GPUs");
    }
    if (!survey.failed_call.empty()) return failed_call(survey);
    all.insert(survey.gpus.begin(), survey.gpus.end());
  }
  for (const CudaSurvey& survey : surveys) {
    if (!is_short(survey, given)) continue;
    return failure("cuda",
                   fmt::format("CUDA detects {} of the {} GPUs that {} assigned to the job", survey.gpus.size(),
                               std::min(given, survey.listed.value_or(given)), job.given_gpus.by),
                   explain_cuda_error(cuda_error::kNoDevice).remedy);
  }
  return ok("cuda", fmt::format("initializes on {} GPU{}", all.size(), all.size() == 1 ? "" : "s"));
}

}  // namespace

CudaSurvey survey_cuda(const std::vector<std::string>& libraries, const Asker& asker) {
  CudaSurvey survey;
  survey.listed = listed_gpus(parallel::process_environment);
  const SharedLibrary library(libraries);
  if (!library) {
    survey.library_error = library.reason();
    return survey;
  }
  Driver driver(library, survey);
  if (!driver.call("cuInit", 0U) || !driver.list()) return survey;
  const int count = static_cast<int>(survey.gpus.size());
  for (Device device = 0; device < count; ++device) {
    if (count >= asker.of && device % asker.of != asker.index) continue;
    if (!driver.open(device)) return survey;
  }
  return survey;
}

bool needs_cuda(const Job& job, const GpuSurvey& gpus) {
  return job.device != "cpu" && (job.device == "cuda" || !gpus.gpus.empty() || job.given_gpus.count > 0);
}

Finding check_cuda_start(const Job& job, const GpuSurvey& gpus, const std::vector<CudaSurvey>& surveys) {
  if (!needs_cuda(job, gpus)) return ok("cuda", "not required on the CPU");
  for (const CudaSurvey& survey : surveys) {
    if (!survey.library_error.empty()) return failure("driver", survey.library_error);
  }
  return check_start(job, surveys);
}

}  // namespace mpzero::doctor
