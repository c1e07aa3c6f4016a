#pragma once

#include <string>

#include "app/config/run_setup.hpp"
#include "app/plan/calibration.hpp"
#include "app/plan/estimate/plan_machine.hpp"
#include "app/plan/simulation/simulated_run.hpp"

namespace mpzero::plan {

// Derives the inputs of a simulation from a calibration and the planned hosts.

// Reads the calibration in `file` or, if `file` is empty, the shipped calibration for the GPU or processor. Throws
// UserError if the calibration is missing, invalid or for the wrong kind of device.
Calibration calibration_of(const PlanMachine& machine, const std::string& file);

// Returns the times of the model's units, averaged over layers and micro-batches. `kept_casts`: number of layers that
// keep FP8 casts of weights.
UnitTimes times_of_units(const Calibration& calibration, const RunSetup& setup, const PlanMachine& machine,
                         int64_t kept_casts = 0);
// Sets run.costs, run.host_adamw and run.within_host.
void set_rates(SimulatedRun& run, const Calibration& calibration, const PlanMachine& machine);
// Data-sheet memory bandwidth of `instance`, used to estimate AdamW on the host. 0: the calibration's rate is used.
struct HostEstimate {
  double bytes_per_second = 0;
  std::string instance;
};
HostEstimate host_estimate(const Calibration& calibration, const PlanMachine& machine);
// Returns true if AdamW's time on the host is estimated from data sheets or the host of a shipped calibration.
bool host_adamw_is_estimate(const Calibration& calibration, const PlanMachine& machine);
// Returns the relative error of a step's time, e.g. 0.1 for +/- 10%. The error is larger if the calibration is for a
// different device or for a CPU with different numbers of ranks or threads, or if it lacks the run's FP8 or fp32 times.
double relative_error(const Calibration& calibration, const PlanMachine& machine, const RunConfig& config);
// Returns a warning if the calibration is for a different GPU or processor, otherwise an empty string.
std::string of_another_device(const Calibration& calibration, const PlanMachine& machine);
// Returns a warning if the plan's FP8 or fp32 matmuls are estimates, otherwise an empty string.
std::string estimated_products(const Calibration& calibration, const RunConfig& config);
// Returns true if hosts have several CPU ranks and the calibration contains collectives between them.
bool has_collectives(const Calibration& calibration, const PlanMachine& machine);

}  // namespace mpzero::plan
