#pragma once

#include <string>
#include <vector>

#include "app/machine/finding.hpp"
#include "base/environment.hpp"

namespace mpzero::doctor {

// Slurm job and restart of a report. Without Slurm, the id is empty.
struct JobStart {
  std::string id;
  int restart = 0;  // how often Slurm has started the job before
};
JobStart job_start(const parallel::Environment& environment);

// {"job", "restart", "hosts": [{"host": ..., "status": ..., "findings": [{"check", "status", "message", "remedy",
// "blame"}]}]}; "blame" is "job" or "host" for a failure, else empty.
std::string to_json(const JobStart& start, const std::vector<HostReport>& reports);

struct TableStyle {
  bool color = false;  // with the terminal's colors
  bool brief = false;  // checks that are ok are counted, not listed
};

// A table for a terminal. Hosts with the same warnings and failures share an entry; entries with failures come first.
// In an entry, the worst findings come first, and checks that are ok are those of its first host. The last lines are a
// summary and, if several hosts all fail, whether other hosts would help. Call after tell_job_from_hosts().
std::string to_table(const std::vector<HostReport>& reports, TableStyle style);

}  // namespace mpzero::doctor
