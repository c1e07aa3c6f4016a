#pragma once

#include <nlohmann/json_fwd.hpp>
#include <vector>

#include "app/machine/nvml.hpp"

namespace mpzero::doctor {

// For its way to another rank (base/collectives.hpp).
void to_json(nlohmann::json& json, const GpuSurvey& survey);
void from_json(const nlohmann::json& json, GpuSurvey& survey);

// What the ranks of one host know together: Slurm may show each of them its own GPU alone. Every GPU once, in the order
// of the bus; the first problem that any of them has met.
GpuSurvey merge_surveys(const std::vector<GpuSurvey>& surveys);

}  // namespace mpzero::doctor
