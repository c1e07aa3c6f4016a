#pragma once

#include <string>

#include "app/config/run_setup.hpp"
#include "app/plan/calibration.hpp"
#include "app/plan/command/plan_machine.hpp"
#include "app/plan/simulation/simulated_run.hpp"

namespace mpzero::plan {

// What a simulation takes from a calibration, and from the hosts where these differ from the calibrated one.

// Reads `file` or, where that is empty, the one of configs/calibrations that is for the GPU or processor. Throws
// UserError.
Calibration calibration_of(const PlanMachine& machine, const std::string& file);

// `kept_casts`: layers that keep the casts of their weights to FP8.
UnitTimes times_of_units(const Calibration& calibration, const RunSetup& setup, const PlanMachine& machine,
                         int64_t kept_casts = 0);
// Sets run.costs, run.host_adamw and run.within_host.
void set_rates(SimulatedRun& run, const Calibration& calibration, const PlanMachine& machine);
// AdamW on the host by data sheets, not measured: bytes a second of a host's memory and the instance that has it. 0:
// the calibration says it.
struct HostEstimate {
  double bytes_per_second = 0;
  std::string instance;
};
HostEstimate host_estimate(const Calibration& calibration, const PlanMachine& machine);
// Whether its time is an estimate: by data sheets, or by the host of a calibration that comes with mpzero.
bool host_adamw_is_estimate(const Calibration& calibration, const PlanMachine& machine);
// 0: not measured.
double disk_bytes_per_second(const Calibration& calibration);
// Of a step's time: half of an interval. Wider on another device than the calibrated one, on a CPU that was measured
// with other threads, and in FP8 or fp32 where that was not measured.
double relative_error(const Calibration& calibration, const PlanMachine& machine, const RunConfig& config);
// A sentence about a calibration that is of another GPU or processor than the plan; empty: it is of the plan's.
std::string of_another_device(const Calibration& calibration, const PlanMachine& machine);
// A sentence about a plan in FP8 or fp32 whose products are estimates; empty: they were measured.
std::string estimated_products(const Calibration& calibration, const RunConfig& config);
// Whether the calibration has the collectives between a host's ranks.
bool has_collectives(const Calibration& calibration, const PlanMachine& machine);

}  // namespace mpzero::plan
