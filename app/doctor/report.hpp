#pragma once

#include <string>
#include <vector>

#include "app/machine/finding.hpp"
#include "base/environment.hpp"

namespace mpzero::doctor {

// The Slurm job that a report describes.
struct JobStart {
  std::string id;   // empty without Slurm
  int restart = 0;  // SLURM_RESTART_COUNT
};
JobStart job_start(const parallel::Environment& environment);

// Returns {"job", "restart", "hosts": [{"host": ..., "status": ..., "findings": [{"check", "status", "message",
// "remedy", "blame"}]}]}. "blame" is "job" or "host" for a failure, else empty.
std::string to_json(const JobStart& start, const std::vector<HostReport>& reports);

struct TableStyle {
  bool color = false;  // use terminal colors
  bool brief = false;  // print only the number of checks with status kOk
};

// Returns a table for a terminal. Hosts with the same warnings and failures share an entry. Entries and findings are
// ordered by decreasing severity. Findings with status kOk are from the first host of the entry. The table ends with a
// summary. If several hosts were checked and all failed, the summary states whether other hosts would help. Must be
// called after tell_job_from_hosts().
std::string to_table(const std::vector<HostReport>& reports, TableStyle style);

}  // namespace mpzero::doctor
