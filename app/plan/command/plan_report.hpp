#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "app/plan/estimate/plan_estimate.hpp"

namespace mpzero::plan {

// Inputs of a plan report.
struct PlanFacts {
  const RunSetup& setup;
  const PlanMachine& machine;
  const Calibration* calibration = nullptr;              // null: no step times
  std::optional<double> clipped_seconds = std::nullopt;  // step time after a clipped step; null: equal for all steps
  double tokens = 0;                                     // training tokens; 0: not set
  std::string nodes = {};                                // line about the layout; empty: one host
  std::string largest = {};                              // result of --max_seq_length or --largest_model
};

// Reports omit hours and costs if the relative error of the step time is at least kVagueError.
constexpr double kVagueError = 0.75;

// Formats hours, e.g. "20.4" or "0.042".
std::string hours_text(double hours);

// Returns the lines of the plan report.
std::vector<std::string> describe_plan(const PlanFacts& facts, const PlanEstimate& plan);
// Returns the plan report as JSON (docs/formats.md).
nlohmann::ordered_json plan_json(const PlanFacts& facts, const PlanEstimate& plan);

}  // namespace mpzero::plan
