#pragma once

#include <optional>

#include "app/memory/layout_choice.hpp"
#include "app/plan/command/plan_estimate.hpp"

namespace mpzero::plan {

// The hosts of a run, with its proven network.
PlanMachine machine_of(const PlannedRun& run);

// The plan of a run, with this layout. Throws if the GPU or processor has no calibration or the run cannot be planned.
PlanEstimate plan_of(const PlannedRun& run, const parallel::ParallelLayout& layout);

// The predicted step of a starting run with this layout; see PlannedRun. std::nullopt if the GPU has no calibration, or
// the run cannot be planned or does not fit.
std::optional<PredictedStep> predicted_step(const PlannedRun& run, const parallel::ParallelLayout& layout);

}  // namespace mpzero::plan
