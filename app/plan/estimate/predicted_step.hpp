#pragma once

#include <optional>
#include <string>

#include "app/memory/layout_choice.hpp"
#include "app/plan/estimate/plan_estimate.hpp"

namespace mpzero::plan {

// A run to plan, before or during training.
struct PlannedRun {
  const RunSetup& setup;
  std::string gpu = {};  // GPU name
  int64_t gpu_bytes = 0;
  std::string processor = {};  // processor name and threads per rank, for runs on CPUs
  int threads = 0;
  int hosts = 1;
  int per_host = 1;
  int64_t host_bytes = 0;  // available memory per host before the run; 0: unknown
  // Verified network between hosts, "efa" or "socket". If empty, --network applies.
  std::string network = {};
};

// Returns a run on hosts like this one. `host_bytes`: see PlannedRun; unused on the CPU. `network`: verified network.
PlannedRun planned_run(const RunSetup& setup, at::Device device, int per_host, int64_t host_bytes,
                       const std::string& network = "");

// Returns the hosts of a run, with the verified network if known.
PlanMachine machine_of(const PlannedRun& run);

// Plans a run with the given layout. Throws if the device has no calibration, or if the run cannot be planned.
PlanEstimate plan_of(const PlannedRun& run, const parallel::ParallelLayout& layout,
                     const PlanAssumptions& assumptions = {});

// Predicts a step of a run with the given layout. Returns std::nullopt if the device has no calibration, or if the run
// cannot be planned or does not fit.
std::optional<PredictedStep> predicted_step(const PlannedRun& run, const parallel::ParallelLayout& layout);

// Predicts whether a run on GPUs releases gradients. Returns std::nullopt if mpzero does not make this choice, or if
// the run cannot be planned.
std::optional<bool> predicted_release(const PlannedRun& run);

// Returns a warning if mpzero chose the layout of a run for a network other than the verified one; otherwise, an empty
// string.
std::string assumed_network_warning(const PlannedRun& run);

}  // namespace mpzero::plan
