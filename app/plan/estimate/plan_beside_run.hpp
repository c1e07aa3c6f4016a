#pragma once

#include <string>

#include "app/log/step_timer.hpp"
#include "app/plan/estimate/predicted_step.hpp"

namespace mpzero::plan {

// Returns a log line that compares the planned step with `mean`, the mean times of rank 0's first steps. If planning
// fails, the line contains the reason. Returns an empty string if the run does not fit according to the plan.
// `clipped`: true if these steps clipped gradients.
std::string plan_beside_run(const PlannedRun& run, const StepSplit& mean, bool clipped = false);

// Formats the comparison of a planned step with a measured step. `error`: the plan's expected relative error.
// `network`: assumed network, empty for one host.
std::string beside(const StepSplit& planned, const StepSplit& measured, double error, const std::string& network = "");

}  // namespace mpzero::plan
