#pragma once

#include <c10/core/Device.h>

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "app/liveness/failure_report.hpp"
#include "app/liveness/rank_record.hpp"

// What a process still does that is about to end. None of it waits for long, even for a disk that does not answer.
namespace mpzero {

// What a report tells beside the ranks, and where.
struct ReportFacts {
  std::filesystem::path checkpoint_dir;
  SlurmJob job;
  std::optional<std::string> ras_address;  // NCCL_RAS_ADDR, empty where that is not set; none: no NCCL in this run
};
// Reads the environment, and whatever else is read once: for a time when no other thread changes it, which reports are
// not written at.
ReportFacts report_facts(const std::filesystem::path& checkpoint_dir, at::Device device);

// Writes who held the run up to stderr and to failure.json, then to stderr what NCCL's own monitor counts, if it
// answers. `records`: by rank, not empty. `meanwhile` is called several times a second while NCCL is waited for.
void tell_failure(
    const std::vector<RankRecord>& records, const ReportFacts& facts, const std::function<void()>& meanwhile = [] {});

// Writes to stderr that the run stops without a save because it was asked to, by its exit code, and what is left of it.
void tell_stop(int exit_code, const std::filesystem::path& checkpoint_dir);

}  // namespace mpzero
