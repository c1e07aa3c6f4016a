#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "app/plan/command/plan_estimate.hpp"

namespace mpzero::plan {

// Inputs of a plan's report.
struct PlanFacts {
  const RunSetup& setup;
  const PlanMachine& machine;
  const Calibration* calibration = nullptr;  // null: no step times
  double tokens = 0;                         // of the whole training; 0: not set
  std::string nodes = {};                    // reason for the layout; empty: one host
  std::string largest = {};                  // the result of --max_seq_length or --largest_model
};

// Hours and costs are omitted from this relative error of a step on: they would be wrong by half or more.
constexpr double kVagueError = 0.75;

// "20.4", "0.042".
std::string hours_text(double hours);

// The lines of the report.
std::vector<std::string> describe_plan(const PlanFacts& facts, const PlanEstimate& plan);
// docs/formats.md documents the fields.
nlohmann::ordered_json plan_json(const PlanFacts& facts, const PlanEstimate& plan);

}  // namespace mpzero::plan
