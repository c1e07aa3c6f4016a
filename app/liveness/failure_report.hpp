#pragma once

#include <string>
#include <vector>

#include "app/liveness/failure_verdict.hpp"
#include "app/liveness/rank_record.hpp"

namespace mpzero {

// Slurm's id of the job and its restart count.
struct SlurmJob {
  std::string id;  // empty: none
  int restart = 0;
};

// Text for the user: the verdict, then every rank with its step and its last collectives. Ranks at the same place share
// a line. `checkpoint`: the newest one, empty: none.
std::string report_text(const Verdict& verdict, const std::vector<RankRecord>& records, const std::string& checkpoint);
// failure.json: time (ISO 8601), job, restart, step, reason, ranks, hosts.
std::string report_json(const Verdict& verdict, const std::vector<RankRecord>& records, const SlurmJob& job);

}  // namespace mpzero
