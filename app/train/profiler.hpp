#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "app/config/run_config.hpp"

namespace mpzero {

// Takes a trace of the steps that --profile_steps names: operators and units on the CPU, kernels, collectives and
// copies on the GPU. Perfetto and chrome://tracing open the file.
class Profiler {
 public:
  // One of this program's profilers takes a trace at a time.
  Profiler(const RunConfig& config, int rank, at::Device device);
  ~Profiler();
  Profiler(const Profiler&) = delete;
  Profiler& operator=(const Profiler&) = delete;

  // The step begins; the trace begins with it if it is the first of those to profile, or a later one of them where the
  // run goes on from a checkpoint.
  void begin_step(int64_t step);

  // What to tell the user; empty: nothing.
  struct Outcome {
    std::string message;
    std::string warning;
  };
  // The step has ended. The trace is written behind the last step to profile; one that cannot be is a warning.
  Outcome end_step(int64_t step);

 private:
  std::optional<StepRange> steps_;  // none: this rank profiles nothing
  std::filesystem::path folder_;
  int rank_;
  at::Device device_;
  int64_t first_traced_ = 0;  // step; 0: no trace is being taken
};

}  // namespace mpzero
