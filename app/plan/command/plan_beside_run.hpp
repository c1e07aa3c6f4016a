#pragma once

#include <string>

#include "app/log/step_timer.hpp"
#include "app/memory/layout_choice.hpp"

namespace mpzero::plan {

// The plan of a run's step beside `mean`, the mean of rank 0's first steps, and which part differs the most, as a line
// for the log. A GPU or processor without a calibration is one sentence. Empty: the plan says that the run does not
// fit.
std::string plan_beside_run(const PlannedRun& run, const StepSplit& mean);

// `error`: relative, of the plan. `network`: that it is of; empty: one host.
std::string beside(const StepSplit& planned, const StepSplit& measured, double error, const std::string& network = "");

}  // namespace mpzero::plan
