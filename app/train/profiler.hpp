#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "app/config/run_config.hpp"

namespace mpzero {

// Traces the steps in --profile_steps: operators and units on the CPU; kernels, collectives and copies on the GPU. Open
// the file with Perfetto or chrome://tracing.
class Profiler {
 public:
  // Only one profiler per process can trace at a time.
  Profiler(const RunConfig& config, int rank, at::Device device);
  ~Profiler();
  Profiler(const Profiler&) = delete;
  Profiler& operator=(const Profiler&) = delete;

  // Call when a step begins. Starts the trace at the first step to profile, or at a later one if the run resumed in
  // between.
  void begin_step(int64_t step);

  // Messages for the user; empty: none.
  struct Outcome {
    std::string message;
    std::string warning;
  };
  // Call when a step has ended. Writes the trace after the last step to profile; returns a warning if it cannot be
  // written.
  Outcome end_step(int64_t step);

 private:
  std::optional<StepRange> steps_;  // std::nullopt: this rank profiles nothing
  std::filesystem::path folder_;
  int rank_;
  at::Device device_;
  int64_t first_traced_ = 0;  // step; 0: not tracing
};

}  // namespace mpzero
