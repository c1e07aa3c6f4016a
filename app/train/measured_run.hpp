#pragma once

#include <functional>
#include <string>

#include "app/log/step_timer.hpp"
#include "app/memory/layout_choice.hpp"

namespace mpzero {

// A run, after its first steps.
struct MeasuredRun {
  PlannedRun run;
  StepSplit mean;  // of rank 0's steps
};

// A line about a plan of the run beside what was measured; empty: there is none to compare with. On rank 0, once.
using PlanBesideRun = std::function<std::string(const MeasuredRun&)>;

}  // namespace mpzero
