#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "app/plan/command/plan_comparison.hpp"

namespace mpzero::plan {

// `tokens`: of the whole training; 0: not known. A table, then the ds_config.json of the fastest on the asked hosts
// and, where others are faster, of the fastest of all.
std::vector<std::string> describe_comparison(const PlanComparison& comparison, double tokens);
nlohmann::ordered_json comparison_json(const PlanComparison& comparison, double tokens);

}  // namespace mpzero::plan
