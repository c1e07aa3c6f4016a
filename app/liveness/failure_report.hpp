#pragma once

#include <string>
#include <vector>

#include "app/liveness/failure_verdict.hpp"
#include "app/liveness/rank_record.hpp"

namespace mpzero {

// Lines for a person: the verdict, then every rank with its step and its last collectives, alike ones together.
// `checkpoint`: the newest one, empty: none; `ras`: what NCCL's own monitor says, empty: nothing.
std::string report_text(const Verdict& verdict, const std::vector<RankRecord>& records, const std::string& checkpoint,
                        const std::string& ras);
// failure.json: time (ISO 8601), job and restart (Slurm's), step, reason, ranks, hosts.
std::string report_json(const Verdict& verdict, const std::vector<RankRecord>& records);

}  // namespace mpzero
