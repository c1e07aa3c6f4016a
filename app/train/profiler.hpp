#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "app/config/run_config.hpp"

namespace mpzero {

// Traces the steps of --profile_steps. A trace contains CPU operators, units, GPU kernels, collectives and copies. Open
// traces in Perfetto or chrome://tracing.
class Profiler {
 public:
  // Only one Profiler per process can trace at a time.
  Profiler(const RunConfig& config, int rank, at::Device device);
  ~Profiler();
  Profiler(const Profiler&) = delete;
  Profiler& operator=(const Profiler&) = delete;

  // Must be called at the beginning of each step. Starts the trace at the first step to profile, or at a later step if
  // the run resumed within the range.
  void begin_step(int64_t step);

  // Messages about the trace for the user; may be empty.
  struct Outcome {
    std::string message;
    std::string warning;
  };
  // Must be called at the end of each step. Writes the trace after the last step to profile. Returns a warning if the
  // trace cannot be written.
  Outcome end_step(int64_t step);

 private:
  std::optional<StepRange> steps_;  // std::nullopt if this rank is not profiled
  std::filesystem::path folder_;
  int rank_;
  at::Device device_;
  int64_t first_traced_ = 0;  // first step of the trace; 0: not tracing
};

}  // namespace mpzero
