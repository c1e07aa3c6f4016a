#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "app/plan/command/plan_command.hpp"

namespace mpzero::plan {

// A calibration that stays as it is when those in configs/calibrations are measured anew.
inline const std::string kCalibration = "--calibration=" MPZERO_SOURCE_DIR "/tests/app/plan/roofline_calibration.json";
inline const std::string kModels = MPZERO_SOURCE_DIR "/configs/models/";

// With this calibration.
inline PlanOutput output_of(std::vector<std::string> flags) {
  flags.push_back(kCalibration);
  return plan_output(flags);
}

inline nlohmann::json json_of(std::vector<std::string> flags) {
  flags.emplace_back("--json");
  return nlohmann::json::parse(output_of(std::move(flags)).text);
}

}  // namespace mpzero::plan
