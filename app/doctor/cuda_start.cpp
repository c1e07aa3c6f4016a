#include "app/doctor/cuda_start.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <string>

#include "app/machine/cuda_error.hpp"

namespace mpzero::doctor {
namespace {

// Of a call that fails, with the GPU and the cause.
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

// Whether CUDA shows a rank fewer GPUs than Slurm has given to the host and than CUDA_VISIBLE_DEVICES lists.
bool is_short(const CudaSurvey& survey, int allotted) {
  return static_cast<int>(survey.gpus.size()) < std::min(allotted, survey.listed.value_or(allotted));
}

Finding check_start(const Job& job, const std::vector<CudaSurvey>& surveys) {
  const int given = job.given_gpus.count;
  std::set<std::string> all;
  for (const CudaSurvey& survey : surveys) {
    if (survey.error == cuda_error::kNoDevice && survey.listed == 0 && job.device != "cuda") {
      return ok("cuda", "not started: CUDA_VISIBLE_DEVICES hides all GPUs");
    }
    if (!survey.failed_call.empty()) return failed_call(survey);
    all.insert(survey.gpus.begin(), survey.gpus.end());
  }
  for (const CudaSurvey& survey : surveys) {
    if (!is_short(survey, given)) continue;
    return failure("cuda",
                   fmt::format("CUDA shows {} of the {} GPUs that {} has given to the job", survey.gpus.size(),
                               std::min(given, survey.listed.value_or(given)), job.given_gpus.by),
                   explain_cuda_error(cuda_error::kNoDevice).remedy);
  }
  return ok("cuda", fmt::format("starts on {} GPU{}", all.size(), all.size() == 1 ? "" : "s"));
}

}  // namespace

bool needs_cuda(const Job& job, const GpuSurvey& gpus) {
  return job.device != "cpu" && (job.device == "cuda" || !gpus.gpus.empty() || job.given_gpus.count > 0);
}

Finding check_cuda_start(const Job& job, const GpuSurvey& gpus, const std::vector<CudaSurvey>& surveys) {
  if (!needs_cuda(job, gpus)) return ok("cuda", "not needed on the CPU");
  for (const CudaSurvey& survey : surveys) {
    if (!survey.library_error.empty()) return failure("driver", survey.library_error);
  }
  return check_start(job, surveys);
}

}  // namespace mpzero::doctor
