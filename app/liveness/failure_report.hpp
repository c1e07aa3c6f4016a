#pragma once

#include <cstdint>
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
  std::string run;      // differs between runs, is the same on all ranks of one
  int64_t started = 0;  // when the run did: seconds since 1970, the same on all ranks
  int rank = 0;
};

// Text for the user: the verdict, then every rank with its step and its last collectives. Ranks at the same place share
// a line. `checkpoint`: the newest one, empty: none.
std::string report_text(const Verdict& verdict, const std::vector<RankRecord>& records, const std::string& checkpoint);
// failure.json: time (ISO 8601), job, restart, step, reason, ranks, hosts, run, started, found_by, foundation.
std::string report_json(const Verdict& verdict, const std::vector<RankRecord>& records, const ReportOrigin& origin);
// Why failure.json is not to be replaced.
struct KeptReport {
  std::string why;               // completes "rank R ends: "
  bool is_of_later_run = false;  // so that it does not say why this run has failed
};
// Whether `verdict`, on the run of `origin`, is not to replace failure.json, whose text this is: a later run of the
// same Slurm job has written it, or the verdict there counts more, or as much. std::nullopt: it is to replace it. The
// file may be damaged.
std::optional<KeptReport> why_it_stays(const std::string& text, const ReportOrigin& origin, const Verdict& verdict);

// The text of failure.json, or of stop.json, with the mark `resumed`, if it is about an earlier run within the same
// start of the job of `origin`: where Slurm, or a manager of the cluster, has restarted the step. std::nullopt: it is
// not. stop.json has no `run`: what it says when a run starts is about an earlier one.
std::optional<std::string> mark_resumed(const std::string& text, const ReportOrigin& origin);

}  // namespace mpzero
