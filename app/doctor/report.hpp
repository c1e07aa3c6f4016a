#pragma once

#include <string>
#include <vector>

#include "app/machine/finding.hpp"

namespace mpzero::doctor {

// {"hosts": [{"host": ..., "status": ..., "findings": [{"check", "status", "message", "remedy",
// "blame"}]}]}; "blame" is "job" or "host" of a failure, else empty.
std::string to_json(const std::vector<HostReport>& reports);

// Serializes one host for another rank, which reads it with read_report(). Damaged text throws Failure.
std::string write_report(const HostReport& report);
HostReport read_report(const std::string& text);

// A table for a terminal: one host after the other, the worst findings first, and a summary in the last line. `color`:
// with the terminal's colors.
std::string to_table(const std::vector<HostReport>& reports, bool color);

}  // namespace mpzero::doctor
