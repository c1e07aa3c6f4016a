#pragma once

#include <optional>

#include "app/memory/layout_choice.hpp"
#include "app/plan/command/plan_estimate.hpp"

namespace mpzero::plan {

// What a run is on, with the network that it has proven.
PlanMachine machine_of(const PlannedRun& run);

// The plan of a run, with this layout. Throws if the GPU or processor has no calibration or the run cannot be planned.
PlanEstimate plan_of(const PlannedRun& run, const parallel::ParallelLayout& layout);

// A step of the run that starts, with this layout; see PlannedRun. std::nullopt where there is no plan: the
// GPU has no calibration, or the run cannot be planned or does not fit.
std::optional<PredictedStep> predicted_step(const PlannedRun& run, const parallel::ParallelLayout& layout);

}  // namespace mpzero::plan
