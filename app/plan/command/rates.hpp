#pragma once

#include <string>

#include "app/config/run_setup.hpp"
#include "app/plan/calibration.hpp"
#include "app/plan/command/plan_machine.hpp"
#include "app/plan/simulation/simulated_run.hpp"

namespace mpzero::plan {

// Inputs of a simulation from a calibration, or from the hosts if they differ from the calibrated one.

// Reads `file` or, if empty, the file in configs/calibrations for the GPU or processor. Throws UserError.
Calibration calibration_of(const PlanMachine& machine, const std::string& file);

// `kept_casts`: number of layers that keep their weights' FP8 casts.
UnitTimes times_of_units(const Calibration& calibration, const RunSetup& setup, const PlanMachine& machine,
                         int64_t kept_casts = 0);
// Sets run.costs, run.host_adamw and run.within_host.
void set_rates(SimulatedRun& run, const Calibration& calibration, const PlanMachine& machine);
// AdamW on the host, estimated from data sheets: memory bandwidth of a host, and its instance. 0: from the calibration.
struct HostEstimate {
  double bytes_per_second = 0;
  std::string instance;
};
HostEstimate host_estimate(const Calibration& calibration, const PlanMachine& machine);
// Whether the time of AdamW on the host is an estimate: from data sheets, or from the host of a shipped calibration.
bool host_adamw_is_estimate(const Calibration& calibration, const PlanMachine& machine);
// 0: not measured.
double disk_bytes_per_second(const Calibration& calibration);
// Relative error of a step's time: half the width of the interval. Larger for another device than the calibrated one,
// for a CPU measured with other threads, and for FP8 or fp32 if not measured.
double relative_error(const Calibration& calibration, const PlanMachine& machine, const RunConfig& config);
// A warning if the calibration is for another GPU or processor than the plan; else empty.
std::string of_another_device(const Calibration& calibration, const PlanMachine& machine);
// A warning if the plan's FP8 or fp32 matmuls are estimates; else empty.
std::string estimated_products(const Calibration& calibration, const RunConfig& config);
// Whether the calibration has the collectives between a host's ranks.
bool has_collectives(const Calibration& calibration, const PlanMachine& machine);

}  // namespace mpzero::plan
