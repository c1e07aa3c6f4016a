#pragma once

#include <optional>
#include <string>

#include "app/memory/layout_choice.hpp"
#include "app/plan/estimate/plan_estimate.hpp"

namespace mpzero::plan {

// A run to plan, before or during training.
struct PlannedRun {
  const RunSetup& setup;
  PlanMachine machine = {};
  bool network_is_verified = false;
  std::string problem = {};  // reason why `machine` is unknown
};

// Returns a run on hosts with these GPUs. `host_bytes`: available memory per host before the run; 0: unknown.
// `network`: verified network between hosts, "efa" or "socket"; if empty, --network applies.
PlannedRun planned_run(const RunSetup& setup, const std::string& gpu, int64_t gpu_bytes, int hosts, int per_host,
                       int64_t host_bytes, const std::string& network = "");
// Returns a run on hosts like this one. On the CPU, `host_bytes` and `network` are unused.
PlannedRun planned_run(const RunSetup& setup, at::Device device, int per_host, int64_t host_bytes,
                       const std::string& network = "");

// Plans a run with the given layout. Throws if the device has no calibration, or if the run cannot be planned.
PlanEstimate plan_of(const PlannedRun& run, const parallel::ParallelLayout& layout,
                     const PlanAssumptions& assumptions = {});

// Predicts a step of a run with the given layout. Returns std::nullopt if the device has no calibration, or if the run
// cannot be planned or does not fit.
std::optional<PredictedStep> predicted_step(const PlannedRun& run, const parallel::ParallelLayout& layout);

// Predicts whether a run on GPUs releases gradients. Returns std::nullopt if mpzero does not make this choice, or if
// the run cannot be planned.
std::optional<bool> predicted_release(const PlannedRun& run);

// Returns a warning if mpzero chose the layout of a run for a network other than the verified one, `network`;
// otherwise, an empty string. `run`: the run with the assumed network.
std::string assumed_network_warning(const PlannedRun& run, const std::string& network);

}  // namespace mpzero::plan
