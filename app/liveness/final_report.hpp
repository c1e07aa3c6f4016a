#pragma once

#include <c10/core/Device.h>

#include <chrono>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "app/liveness/decision/failure_verdict.hpp"
#include "app/liveness/decision/rank_record.hpp"
#include "app/liveness/failure_report.hpp"
#include "app/liveness/link/dialer.hpp"
#include "base/process_group.hpp"

// What a process does right before it ends. Nothing here waits for long, even for a disk that does not respond, or for
// a terminal or pipe that nothing reads.
namespace mpzero {

// How long a file system that does not respond, and a terminal or pipe that nothing reads, delay each report.
constexpr std::chrono::milliseconds kDiskLimit(3000);
constexpr std::chrono::milliseconds kPrintLimit(1000);

// Writes `text` to stderr. If nothing reads it, this returns after a second, and the text may be lost.
void print_error(const std::string& text);

// What a report contains in addition to the ranks, and where it is written.
struct ReportFacts {
  std::filesystem::path checkpoint_dir;
  ReportOrigin origin;
  std::optional<std::string> ras_address;  // NCCL_RAS_ADDR, empty if it is not set; std::nullopt: no NCCL
};
// Reads the environment and other process-wide state. Call it while no other thread changes them; at the time of a
// report another thread may.
ReportFacts report_facts(const std::filesystem::path& checkpoint_dir, at::Device device, const RankRoster& roster = {});

// Writes which ranks held up the run to failure.json and to stderr. If failure.json has a verdict on this run that
// counts more, or as much, it stays, and stderr gets one line that refers to it. Returns why failure.json stays as it
// is. `records`: by rank, not empty.
std::optional<KeptReport> report_failure(const Verdict& verdict, const std::vector<RankRecord>& records,
                                         const ReportFacts& facts);

// Writes the counts of NCCL's RAS service to stderr, if there is one and it responds. `meanwhile` is called several
// times a second while waiting for it.
void report_ras(const ReportFacts& facts, const std::function<void()>& meanwhile);

// Marks the failure.json and the stop.json of an earlier run within this start of the job as `resumed`, so that they
// are not taken for reports of this run. For one rank, at the start of a run.
void mark_earlier_reports(const ReportFacts& facts);

// Writes failure.json for a failure that all ranks know of before they watch each other. `reason`: one sentence without
// its full stop. `culprits`: the ranks that are the cause. Collective.
void write_start_failure(const std::string& reason, const std::vector<int>& culprits, const ReportFacts& facts,
                         ProcessGroup& group);

// Writes stop.json for a run that stops before its first step to leave these hosts. `left_hosts`: the reasons, by host;
// empty: nothing is written. A file that cannot be written is a warning.
void write_stop_report(const std::map<std::string, std::string>& left_hosts, const ReportFacts& facts);

// Writes to stderr that the run stops on request without saving, according to its exit code, and which checkpoint
// remains.
void report_stop(int exit_code, const std::filesystem::path& checkpoint_dir);

}  // namespace mpzero
