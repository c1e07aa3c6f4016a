#pragma once

#include <string>

#include "app/log/step_timer.hpp"
#include "app/memory/layout_choice.hpp"

namespace mpzero::plan {

// A log line that compares the planned step with `mean`, the mean of rank 0's first steps, and reports the largest
// difference; or why there is no plan, e.g. no calibration. Empty: the run does not fit according to the plan.
std::string plan_beside_run(const PlannedRun& run, const StepSplit& mean);

// `error`: the plan's relative error. `network`: the network that it assumes; empty: one host.
std::string beside(const StepSplit& planned, const StepSplit& measured, double error, const std::string& network = "");

}  // namespace mpzero::plan
