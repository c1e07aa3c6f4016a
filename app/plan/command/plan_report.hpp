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

// Duration and cost of the whole training.
struct RunLength {
  double steps = 0, hours = 0, gpu_hours = 0;
  std::optional<double> cost;
};

// Returns std::nullopt if `steps` is 0 (unknown) or the step's error is too large.
std::optional<RunLength> run_length(const PlanMachine& machine, const PlanEstimate& plan, double steps);

// Formats hours, e.g. "20.4" or "0.042".
std::string hours_text(double hours);

// Returns the lines of the plan report.
std::vector<std::string> describe_plan(const PlanFacts& facts, const PlanEstimate& plan);
// Returns the plan report as JSON (docs/formats.md).
nlohmann::ordered_json plan_json(const PlanFacts& facts, const PlanEstimate& plan);

}  // namespace mpzero::plan
