#pragma once

#include <nlohmann/json_fwd.hpp>
#include <vector>

#include "app/gpu/nvml.hpp"

namespace mpzero::doctor {

// Serialization for other ranks (base/collectives.hpp).
void to_json(nlohmann::json& json, const GpuSurvey& survey);
void from_json(const nlohmann::json& json, GpuSurvey& survey);

// Merges the surveys of one host's ranks: Slurm may show each rank only its own GPU. The result has every GPU once, in
// the order of the bus, and the first problem that any rank has met.
GpuSurvey merge_surveys(const std::vector<GpuSurvey>& surveys);

}  // namespace mpzero::doctor
