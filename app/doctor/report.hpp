#pragma once

#include <string>
#include <vector>

#include "app/machine/finding.hpp"

namespace mpzero::doctor {

// {"hosts": [{"host": ..., "status": ..., "findings": [{"check", "status", "message", "remedy",
// "blame"}]}]}; "blame" is "job" or "host" of a failure, else empty.
std::string to_json(const std::vector<HostReport>& reports);

// One host as text that another rank reads again with read_report(); a report that is damaged throws Failure.
std::string write_report(const HostReport& report);
HostReport read_report(const std::string& text);

// A table for a terminal: hosts one after the other, what is worst first, and a last line that sums up. `color`: with
// the terminal's colors.
std::string to_table(const std::vector<HostReport>& reports, bool color);

}  // namespace mpzero::doctor
