#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "app/config/run_config.hpp"

namespace mpzero {

// Traces the steps in --profile_steps: operators and units on the CPU, kernels, collectives and copies on the GPU.
// Perfetto and chrome://tracing open the file.
class Profiler {
 public:
  // Only one profiler of a process takes a trace at a time.
  Profiler(const RunConfig& config, int rank, at::Device device);
  ~Profiler();
  Profiler(const Profiler&) = delete;
  Profiler& operator=(const Profiler&) = delete;

  // The step begins. The trace begins with it if it is the first step to profile, or a later one of them if the run
  // resumed from a checkpoint.
  void begin_step(int64_t step);

  // Messages for the user; empty: none.
  struct Outcome {
    std::string message;
    std::string warning;
  };
  // The step has ended. The trace is written after the last step to profile; if it cannot be written, there is a
  // warning.
  Outcome end_step(int64_t step);

 private:
  std::optional<StepRange> steps_;  // none: this rank profiles nothing
  std::filesystem::path folder_;
  int rank_;
  at::Device device_;
  int64_t first_traced_ = 0;  // step; 0: no trace is being taken
};

}  // namespace mpzero
