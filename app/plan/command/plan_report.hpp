#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "app/plan/command/plan_estimate.hpp"

namespace mpzero::plan {

// What a plan is about, for its report.
struct PlanFacts {
  const RunSetup& setup;
  const PlanMachine& machine;
  const Calibration* calibration = nullptr;  // none: there is no step
  double tokens = 0;                         // of the whole training; 0: not given
  std::string nodes = {};                    // why this layout; empty: one host
  std::string largest = {};                  // the result of --max_seq_length or --largest_model
};

// The relative error of a step from which on there are no hours and costs: they would be wrong by half or more.
constexpr double kVagueError = 0.75;

// "20.4", "0.042".
std::string hours_text(double hours);

// A line each.
std::vector<std::string> describe_plan(const PlanFacts& facts, const PlanEstimate& plan);
// docs/formats.md has the fields.
nlohmann::ordered_json plan_json(const PlanFacts& facts, const PlanEstimate& plan);

}  // namespace mpzero::plan
