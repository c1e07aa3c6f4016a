#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "app/plan/command/plan_comparison.hpp"

namespace mpzero::plan {

// Returns a table of the configurations, followed by the ds_config.json of the fastest configuration on the requested
// hosts and, if other hosts are faster, of the fastest configuration overall. `tokens`: training tokens; 0: unknown.
std::vector<std::string> describe_comparison(const PlanComparison& comparison, double tokens);
nlohmann::ordered_json comparison_json(const PlanComparison& comparison, double tokens);

}  // namespace mpzero::plan
