#include "app/liveness/final_report.hpp"

#include <fmt/format.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <exception>
#include <memory>
#include <mutex>
#include <string>
#include <system_error>
#include <thread>
#include <utility>

#include "app/health/nccl_ras.hpp"
#include "app/health/stop_report.hpp"
#include "app/liveness/failure_report.hpp"
#include "app/liveness/link/keyed_hash.hpp"
#include "app/liveness/link/rank_identity.hpp"
#include "app/liveness/report_lock.hpp"
#include "base/collectives.hpp"
#include "base/environment.hpp"
#include "base/error.hpp"
#include "base/output.hpp"
#include "io/files/atomic_file.hpp"
#include "parallel/mpi/deadline.hpp"

namespace mpzero {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kLockLimit(1500);
constexpr size_t kDigits = 16;

// What `read` returns; its initial value if the disk does not respond in time.
template <class T>
T from_disk(const std::function<T()>& read) {
  struct Answer {
    std::mutex mutex;
    T value{};
  };
  const auto answer = std::make_shared<Answer>();
  parallel::no_longer_than(kDiskLimit, [answer, read] {
    T value = read();
    const std::lock_guard lock(answer->mutex);
    answer->value = std::move(value);
  });
  const std::lock_guard lock(answer->mutex);
  return answer->value;
}

// Empty if it is missing or no such file.
std::string text_of(const std::filesystem::path& file) {
  constexpr int64_t kMostBytes = int64_t{64} << 20;
  try {
    return io::read_text_file(file, kMostBytes);
  } catch (const Error&) {
    return "";
  }
}

// The tag in `checkpoint_dir`/latest, unchanged. Empty if there is none, or if the disk does not respond.
std::string newest_checkpoint(const std::filesystem::path& checkpoint_dir) {
  return from_disk<std::string>([checkpoint_dir] {
    const std::string text = text_of(checkpoint_dir / "latest");
    return text.substr(0, text.find('\n'));
  });
}

// Replaces the file by `text`, unless `why_not` has a reason against it: returns that.
std::optional<KeptReport> replace_report(const std::filesystem::path& file, const std::string& text,
                                         const std::function<std::optional<KeptReport>()>& why_not) {
  // No other process, and no other thread, uses this name.
  const std::filesystem::path temporary =
      fmt::format("{}.{}.tmp", file.string(), to_hex(random_bytes()).substr(0, kDigits));
  try {
    io::write_text_file(temporary, text);
    // Writing takes long on a slow disk, and this process may have been stopped: meanwhile others do not wait for the
    // lock any more.
    std::optional<KeptReport> why = why_not();
    if (why) {
      std::filesystem::remove(temporary);
    } else {
      io::rename_path(temporary, file);
      io::sync_folder(file.parent_path());
    }
    return why;
  } catch (...) {
    std::error_code none;
    std::filesystem::remove(temporary, none);
    throw;
  }
}

void warn_unwritten(const std::filesystem::path& file, const std::exception& error) {
  print_error(fmt::format("mpzero: warning: {} could not be written: {}\n", file.filename().string(), error.what()));
}

// Replaces failure.json, unless it is to stay: returns the reason for that, as why_it_stays() does. A report that
// cannot be written is a warning.
std::optional<KeptReport> write_report(const std::filesystem::path& file, const ReportOrigin& origin,
                                       const Verdict& verdict, const std::string& text) {
  return from_disk<std::optional<KeptReport>>([=]() -> std::optional<KeptReport> {
    try {
      std::filesystem::create_directories(file.parent_path());  // it does not exist before the first save
      const ReportLock lock(file, kLockLimit);
      const auto why_not = [&] { return why_it_stays(text_of(file), origin, verdict); };
      if (std::optional<KeptReport> why = why_not()) return why;
      return replace_report(file, text, why_not);
    } catch (const std::exception& error) {
      warn_unwritten(file, error);
    }
    return std::nullopt;
  });
}

// Marks the report as `resumed` if it is of an earlier run within this start of the job.
void mark_if_earlier(const std::filesystem::path& file, const ReportOrigin& origin) {
  try {
    if (!mark_resumed(text_of(file), origin)) return;
    const ReportLock lock(file, kLockLimit);
    const std::optional<std::string> marked = mark_resumed(text_of(file), origin);
    if (marked) replace_report(file, *marked, [] { return std::nullopt; });
  } catch (const std::exception& error) {
    warn_unwritten(file, error);
  }
}

}  // namespace

void print_error(const std::string& text) {
  parallel::no_longer_than(kPrintLimit, [text] { write_output(Output::kStderr, text); });
}

ReportFacts report_facts(const std::filesystem::path& checkpoint_dir, at::Device device, const RankRoster& roster) {
  const auto read = [](const char* name) { return parallel::process_environment(name).value_or(""); };
  // Reads TZ now; formatting a report's time would read it later.
  tzset();
  // The code says nothing about the secret. Without a roster each call is a run of its own.
  const HashBytes secret = roster.secret == HashBytes{} ? random_bytes() : roster.secret;
  return {.checkpoint_dir = checkpoint_dir,
          .origin = {.job = {.id = read("SLURM_JOB_ID"), .restart = std::atoi(read("SLURM_RESTART_COUNT").c_str())},
                     .run = to_hex(keyed_hash(secret, "failure.json")).substr(0, kDigits),
                     .started = roster.started != 0 ? roster.started : std::time(nullptr),
                     .rank = roster.own},
          .ras_address = device.is_cuda() ? std::optional(read("NCCL_RAS_ADDR")) : std::nullopt};
}

std::optional<KeptReport> report_failure(const Verdict& verdict, const std::vector<RankRecord>& records,
                                         const ReportFacts& facts) {
  const std::string tag = newest_checkpoint(facts.checkpoint_dir);
  const std::filesystem::path file = facts.checkpoint_dir / "failure.json";
  const std::optional<KeptReport> kept =
      write_report(file, facts.origin, verdict, report_json(verdict, records, facts.origin));
  if (kept && !kept->is_of_later_run) {
    print_error(fmt::format("mpzero: rank {} ends: {} ({}).\n", facts.origin.rank, kept->why, file.string()));
    return kept;
  }
  print_error(report_text(verdict, records, tag.empty() ? tag : (facts.checkpoint_dir / tag).string()));
  if (kept) print_error(fmt::format("mpzero: warning: {} stays as it is: {}.\n", file.string(), kept->why));
  return kept;
}

void report_ras(const ReportFacts& facts, const std::function<void()>& meanwhile) {
  if (!facts.ras_address) return;
  // Last, because its answer takes seconds. A launcher that has lost a rank may not leave that much time.
  const std::string ras = nccl_ras_status(*facts.ras_address, meanwhile);
  if (!ras.empty()) print_error("  NCCL's RAS counts of the collectives that were requested:\n" + ras);
}

void mark_earlier_reports(const ReportFacts& facts) {
  if (facts.origin.job.id.empty()) return;
  from_disk<bool>([folder = facts.checkpoint_dir, origin = facts.origin] {
    for (const char* name : {"failure.json", "stop.json"}) mark_if_earlier(folder / name, origin);
    return true;
  });
}

void write_start_failure(const std::string& reason, const std::vector<int>& culprits, const ReportFacts& facts,
                         ProcessGroup& group) {
  std::vector<RankRecord> records;
  for (const RankIdentity& identity : all_gather(group, this_process(group.rank(), /*port=*/0))) {
    RankRecord record;
    record.identity = identity;
    records.push_back(record);
  }
  if (group.rank() != 0) return;
  const Verdict verdict = {.ranks = culprits, .reason = reason, .remedy = {}, .foundation = group.world_size()};
  write_report(facts.checkpoint_dir / "failure.json", facts.origin, verdict,
               report_json(verdict, records, facts.origin));
}

void write_stop_report(const std::map<std::string, std::string>& left_hosts, const ReportFacts& facts) {
  if (left_hosts.empty()) return;
  std::vector<std::string> hosts;
  for (const auto& [host, reason] : left_hosts) hosts.push_back(host);
  const StopReport report = {.job = facts.origin.job.id,
                             .restart = facts.origin.job.restart,
                             .reason = left_hosts.begin()->second,
                             .hosts = std::move(hosts)};
  from_disk<bool>([report, folder = facts.checkpoint_dir] {
    try {
      std::filesystem::create_directories(folder);  // it does not exist before the first save
      write_stop_report(folder, report);
    } catch (const std::exception& error) {
      warn_unwritten("stop.json", error);
    }
    return true;
  });
}

void report_stop(int exit_code, const std::filesystem::path& checkpoint_dir) {
  const std::string tag = newest_checkpoint(checkpoint_dir);
  const std::string state = tag.empty() ? "no checkpoint was saved yet" : fmt::format("{} remains", tag);
  if (exit_code == kInterruptedExitCode) {
    print_error(fmt::format("mpzero: interrupted twice: stopped immediately without saving; {}.\n", state));
  } else {
    print_error(fmt::format("mpzero: stopped before the first step, so there is nothing to save: {}.\n", state));
  }
}

}  // namespace mpzero
