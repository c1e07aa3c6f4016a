#include "app/liveness/final_report.hpp"

#include <fmt/format.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <exception>
#include <fstream>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "app/health/nccl_ras.hpp"
#include "app/liveness/failure_report.hpp"
#include "app/liveness/failure_verdict.hpp"
#include "app/liveness/link/rank_identity.hpp"
#include "base/collectives.hpp"
#include "base/environment.hpp"
#include "base/error.hpp"
#include "io/files/atomic_file.hpp"
#include "parallel/mpi/deadline.hpp"

namespace mpzero {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kDiskLimit(3000);

void print(const std::string& text) {
  std::fputs(text.c_str(), stderr);
  std::fflush(stderr);
}

// The tag in `checkpoint_dir`/latest, unchanged. Empty if there is none, or if the disk does not respond.
std::string newest_checkpoint(const std::filesystem::path& checkpoint_dir) {
  struct Answer {
    std::mutex mutex;
    std::string tag;
  };
  const auto answer = std::make_shared<Answer>();
  parallel::no_longer_than(kDiskLimit, [answer, checkpoint_dir] {
    std::ifstream file(checkpoint_dir / "latest");
    std::string tag;
    std::getline(file, tag);
    const std::lock_guard lock(answer->mutex);
    answer->tag = std::move(tag);
  });
  const std::lock_guard lock(answer->mutex);
  return answer->tag;
}

void write_report(const Verdict& verdict, const std::vector<RankRecord>& records, const ReportFacts& facts) {
  parallel::no_longer_than(
      kDiskLimit, [file = facts.checkpoint_dir / "failure.json", text = report_json(verdict, records, facts.job)] {
        try {
          std::filesystem::create_directories(file.parent_path());  // it does not exist before the first save
          io::replace_text_file(file, text);
        } catch (const std::exception& error) {
          print(fmt::format("mpzero: warning: failure.json could not be written: {}\n", error.what()));
        }
      });
}

}  // namespace

ReportFacts report_facts(const std::filesystem::path& checkpoint_dir, at::Device device) {
  const auto read = [](const char* name) { return parallel::process_environment(name).value_or(""); };
  // Reads TZ now; formatting a report's time would read it later.
  tzset();
  return {.checkpoint_dir = checkpoint_dir,
          .job = {.id = read("SLURM_JOB_ID"), .restart = std::atoi(read("SLURM_RESTART_COUNT").c_str())},
          .ras_address = device.is_cuda() ? std::optional(read("NCCL_RAS_ADDR")) : std::nullopt};
}

void report_failure(const std::vector<RankRecord>& records, const ReportFacts& facts,
                    const std::function<void()>& meanwhile) {
  const Verdict verdict = find_culprits(records);
  const std::string tag = newest_checkpoint(facts.checkpoint_dir);
  print(report_text(verdict, records, tag.empty() ? tag : (facts.checkpoint_dir / tag).string()));
  write_report(verdict, records, facts);
  if (!facts.ras_address) return;
  // Last, because its answer takes seconds. A launcher that has lost a rank may not leave that much time.
  const std::string ras = nccl_ras_status(*facts.ras_address, meanwhile);
  if (!ras.empty()) print("  NCCL's RAS counts of the collectives that were requested:\n" + ras);
}

void write_start_failure(const std::string& reason, const std::vector<int>& culprits, const ReportFacts& facts,
                         ProcessGroup& group) {
  std::vector<RankRecord> records;
  for (const RankIdentity& identity : all_gather(group, this_process(group.rank(), /*port=*/0))) {
    RankRecord record;
    record.identity = identity;
    records.push_back(record);
  }
  if (group.rank() == 0) write_report({.ranks = culprits, .reason = reason, .remedy = {}}, records, facts);
}

void report_stop(int exit_code, const std::filesystem::path& checkpoint_dir) {
  const std::string tag = newest_checkpoint(checkpoint_dir);
  const std::string state = tag.empty() ? "no checkpoint was saved yet" : fmt::format("{} remains", tag);
  if (exit_code == kInterruptedExitCode) {
    print(fmt::format("mpzero: interrupted twice: stopped immediately without saving; {}.\n", state));
  } else {
    print(fmt::format("mpzero: stopped before the first step, so there is nothing to save: {}.\n", state));
  }
}

}  // namespace mpzero
