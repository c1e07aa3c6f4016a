#pragma once

#include <string>
#include <vector>

#include "app/machine/nvml.hpp"

namespace mpzero::doctor {

// A survey as text that another rank reads again with read_survey(); one that is damaged throws Failure.
std::string write_survey(const GpuSurvey& survey);
GpuSurvey read_survey(const std::string& text);

// What the ranks of one host know together: Slurm may show each of them its own GPU alone. Every GPU once, in the order
// of the bus; the first problem that any of them has met.
GpuSurvey merge_surveys(const std::vector<GpuSurvey>& surveys);

}  // namespace mpzero::doctor
