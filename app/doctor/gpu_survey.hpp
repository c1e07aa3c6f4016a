#pragma once

#include <string>
#include <vector>

#include "app/machine/nvml.hpp"

namespace mpzero::doctor {

// Serializes a survey for another rank, which reads it with read_survey(). Damaged text throws Failure.
std::string write_survey(const GpuSurvey& survey);
GpuSurvey read_survey(const std::string& text);

// Merges the surveys of one host's ranks: Slurm may show each rank only its own GPU. The result has every GPU once, in
// the order of the bus, and the first problem that any rank has met.
GpuSurvey merge_surveys(const std::vector<GpuSurvey>& surveys);

}  // namespace mpzero::doctor
