#pragma once

#include <functional>
#include <string>

#include "app/config/run_setup.hpp"
#include "app/log/step_timer.hpp"

namespace mpzero {

// A run on GPUs, after its first steps.
struct MeasuredRun {
  const RunSetup& setup;
  std::string gpu;  // its name
  int64_t gpu_bytes = 0;
  int hosts = 1;
  int per_host = 1;
  StepSplit mean;  // of rank 0's steps
};

// A line about a plan of the run beside what was measured; empty: there is none to compare with. On rank 0, once.
using PlanBesideRun = std::function<std::string(const MeasuredRun&)>;

}  // namespace mpzero
