#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "app/machine/finding.hpp"

namespace mpzero::doctor {

// {"hosts": [{"host": ..., "status": ..., "findings": [{"check", "status", "message", "remedy",
// "blame"}]}]}; "blame" is "job" or "host" of a failure, else empty.
std::string to_json(const std::vector<HostReport>& reports);

// Serialization for other ranks (base/collectives.hpp).
void to_json(nlohmann::json& json, const HostReport& report);
void from_json(const nlohmann::json& json, HostReport& report);

// A table for a terminal: one host after the other, the worst findings first, and a summary in the last line. `color`:
// with the terminal's colors.
std::string to_table(const std::vector<HostReport>& reports, bool color);

}  // namespace mpzero::doctor
