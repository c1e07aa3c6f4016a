#pragma once

#include <optional>
#include <string>
#include <vector>

#include "app/liveness/decision/failure_verdict.hpp"
#include "app/liveness/decision/rank_record.hpp"

namespace mpzero {

// Slurm's id of the job and its restart count.
struct SlurmJob {
  std::string id;  // empty: none
  int restart = 0;
};

// Which run a report is about, and who wrote it.
struct ReportOrigin {
  SlurmJob job;
  std::string run;  // differs between runs, is the same on all ranks of one
  int rank = 0;
};

// Text for the user: the verdict, then every rank with its step and its last collectives. Ranks at the same place share
// a line. `checkpoint`: the newest one, empty: none.
std::string report_text(const Verdict& verdict, const std::vector<RankRecord>& records, const std::string& checkpoint);
// failure.json: time (ISO 8601), job, restart, step, reason, ranks, hosts, run, found_by, foundation.
std::string report_json(const Verdict& verdict, const std::vector<RankRecord>& records, const ReportOrigin& origin);
// The reason in the text of failure.json, if it is about the run `run` and counts more than `verdict`, or as much.
// std::nullopt: `verdict` is to replace it. The file may be damaged.
std::optional<std::string> reason_that_counts_more(const std::string& text, const std::string& run,
                                                   const Verdict& verdict);

}  // namespace mpzero
