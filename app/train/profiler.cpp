#include "app/train/profiler.hpp"

#include <c10/cuda/CUDAFunctions.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/profiler_kineto.h>

#include <algorithm>
#include <cstdlib>
#include <set>

namespace mpzero {
namespace {

namespace kineto = torch::autograd::profiler;
using torch::profiler::impl::ActivityType;

std::filesystem::path trace_folder(const RunConfig& config) {
  if (!config.profile_dir.empty()) return config.profile_dir;
  if (config.metrics_file.empty()) return config.checkpoint_dir;
  const auto folder = std::filesystem::path(config.metrics_file).parent_path();
  return folder.empty() ? std::filesystem::path(".") : folder;
}

void wait_for_device(at::Device device) {
  if (device.is_cuda()) c10::cuda::device_synchronize();
}

bool saw_gpu(const kineto::ProfilerResult& trace) {
  return std::any_of(trace.events().begin(), trace.events().end(),
                     [](const kineto::KinetoEvent& event) { return event.deviceType() == c10::DeviceType::CUDA; });
}

}  // namespace

Profiler::Profiler(const RunConfig& config, int rank, at::Device device)
    : folder_(trace_folder(config)), rank_(rank), device_(device) {
  if (rank == 0 || config.profile_all_ranks) steps_ = config.profile_steps;
}

Profiler::~Profiler() {
  if (first_traced_ == 0) return;
  try {
    kineto::disableProfiler();
  } catch (const std::exception&) {
    // Another error ended the run during the trace and is reported instead.
  }
}

void Profiler::begin_step(int64_t step) {
  if (!steps_ || first_traced_ != 0 || step < steps_->first || step > steps_->last) return;
  // Exclude work that earlier steps have queued.
  wait_for_device(device_);
  const torch::profiler::impl::ProfilerConfig config(torch::profiler::impl::ProfilerState::KINETO);
  std::set<ActivityType> activities{ActivityType::CPU};
  if (device_.is_cuda()) {
    activities.insert(ActivityType::CUDA);
  } else {
    // Kineto logs an error if there is no GPU.
    setenv("KINETO_LOG_LEVEL", "99", /*overwrite=*/0);
  }
  kineto::prepareProfiler(config, activities);
  kineto::enableProfiler(config, activities, {at::RecordScope::FUNCTION, at::RecordScope::USER_SCOPE});
  first_traced_ = step;
}

Profiler::Outcome Profiler::end_step(int64_t step) {
  if (first_traced_ == 0 || step < steps_->last) return {};
  wait_for_device(device_);
  const std::unique_ptr<kineto::ProfilerResult> trace = kineto::disableProfiler();
  const int64_t first = std::exchange(first_traced_, 0);
  const std::filesystem::path path = folder_ / fmt::format("trace-rank{}-steps-{}-{}.json", rank_, first, step);
  std::error_code error;
  std::filesystem::create_directories(folder_, error);
  std::filesystem::remove(path, error);
  trace->save(path.string());
  if (!std::filesystem::exists(path, error)) {
    return {.message = {},
            .warning = fmt::format("cannot write the trace {}; pass a writable --profile_dir.", path.string())};
  }
  Outcome outcome{.message = fmt::format("Trace of steps {}-{}: {} (open it at https://ui.perfetto.dev or "
                                         "chrome://tracing)",
                                         first, step, path.string()),
                  .warning = {}};
  if (device_.is_cuda() && !saw_gpu(*trace)) {
    outcome.warning =
        "the trace has no GPU kernels: CUPTI (libcupti) is missing, or profiling is not permitted "
        "(NVreg_RestrictProfilingToAdminUsers).";
  }
  return outcome;
}

}  // namespace mpzero
