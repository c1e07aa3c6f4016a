#pragma once

#include <string>

#include "app/log/step_timer.hpp"
#include "app/train/measured_run.hpp"

namespace mpzero::plan {

// The plan of a run's step beside the measured one, and which part differs the most; see MeasuredRun. A GPU or
// processor without a calibration is one sentence.
std::string plan_beside_run(const MeasuredRun& run);

// `error`: relative, of the plan. `network`: that it is of; empty: one host.
std::string beside(const StepSplit& planned, const StepSplit& measured, double error, const std::string& network = "");

}  // namespace mpzero::plan
