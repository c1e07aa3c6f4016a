#include "app/liveness/final_report.hpp"

#include <fcntl.h>
#include <fmt/format.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <exception>
#include <fstream>
#include <memory>
#include <mutex>
#include <sstream>
#include <string>
#include <system_error>
#include <thread>
#include <utility>

#include "app/health/nccl_ras.hpp"
#include "app/liveness/failure_report.hpp"
#include "app/liveness/link/control_channel.hpp"
#include "app/liveness/link/keyed_hash.hpp"
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
constexpr milliseconds kLockLimit(1500);
constexpr milliseconds kPrintLimit(1000);

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

// The tag in `checkpoint_dir`/latest, unchanged. Empty if there is none, or if the disk does not respond.
std::string newest_checkpoint(const std::filesystem::path& checkpoint_dir) {
  return from_disk<std::string>([checkpoint_dir] {
    std::ifstream file(checkpoint_dir / "latest");
    std::string tag;
    std::getline(file, tag);
    return tag;
  });
}

std::string text_of(const std::filesystem::path& file) {
  std::stringstream text;
  text << std::ifstream(file).rdbuf();
  return text.str();
}

// Lets one rank at a time compare its verdict with the one in the file and replace it: the lock is held by creating
// FILE.lock, which works on every file system. A rank that is killed meanwhile leaves it; after kLockLimit it is void.
class ReportLock {
 public:
  explicit ReportLock(std::filesystem::path file) : path_(std::move(file += ".lock")) {
    const auto start = std::chrono::steady_clock::now();
    // Any other error is that of the file itself, too, whose writer reports it.
    while (!create() && errno == EEXIST && std::chrono::steady_clock::now() - start < kLockLimit) {
      std::this_thread::sleep_for(milliseconds(2));
    }
  }
  ~ReportLock() {
    std::error_code none;
    std::filesystem::remove(path_, none);
  }
  ReportLock(const ReportLock&) = delete;
  ReportLock& operator=(const ReportLock&) = delete;

 private:
  bool create() const {
    return static_cast<bool>(Descriptor(open(path_.c_str(), O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0644)));
  }
  std::filesystem::path path_;
};

// Writes failure.json, unless another rank's verdict on this run counts more: returns that one's reason.
std::optional<std::string> write_report(const std::filesystem::path& file, const std::string& run,
                                        const Verdict& verdict, const std::string& text) {
  return from_disk<std::optional<std::string>>([=]() -> std::optional<std::string> {
    try {
      std::filesystem::create_directories(file.parent_path());  // it does not exist before the first save
      const ReportLock lock(file);
      if (std::optional<std::string> reason = reason_that_counts_more(text_of(file), run, verdict)) return reason;
      io::replace_text_file(file, text);
    } catch (const std::exception& error) {
      print_error(fmt::format("mpzero: warning: failure.json could not be written: {}\n", error.what()));
    }
    return std::nullopt;
  });
}

}  // namespace

void print_error(const std::string& text) {
  parallel::no_longer_than(kPrintLimit, [text] {
    std::fputs(text.c_str(), stderr);
    std::fflush(stderr);
  });
}

ReportFacts report_facts(const std::filesystem::path& checkpoint_dir, at::Device device, const RankRoster& roster) {
  constexpr size_t kDigits = 16;
  const auto read = [](const char* name) { return parallel::process_environment(name).value_or(""); };
  // Reads TZ now; formatting a report's time would read it later.
  tzset();
  // The code says nothing about the secret. Without a roster each call is a run of its own.
  const HashBytes secret = roster.secret == HashBytes{} ? random_bytes() : roster.secret;
  return {.checkpoint_dir = checkpoint_dir,
          .origin = {.job = {.id = read("SLURM_JOB_ID"), .restart = std::atoi(read("SLURM_RESTART_COUNT").c_str())},
                     .run = to_hex(keyed_hash(secret, "failure.json")).substr(0, kDigits),
                     .rank = roster.own},
          .ras_address = device.is_cuda() ? std::optional(read("NCCL_RAS_ADDR")) : std::nullopt};
}

void report_failure(const Verdict& verdict, const std::vector<RankRecord>& records, const ReportFacts& facts,
                    const std::function<void()>& meanwhile) {
  const std::string tag = newest_checkpoint(facts.checkpoint_dir);
  const std::filesystem::path file = facts.checkpoint_dir / "failure.json";
  const std::optional<std::string> known =
      write_report(file, facts.origin.run, verdict, report_json(verdict, records, facts.origin));
  if (known) {
    return print_error(fmt::format("mpzero: rank {} ends: the run has ended already, as {} says: {}.\n",
                                   facts.origin.rank, file.string(), *known));
  }
  print_error(report_text(verdict, records, tag.empty() ? tag : (facts.checkpoint_dir / tag).string()));
  if (!facts.ras_address) return;
  // Last, because its answer takes seconds. A launcher that has lost a rank may not leave that much time.
  const std::string ras = nccl_ras_status(*facts.ras_address, meanwhile);
  if (!ras.empty()) print_error("  NCCL's RAS counts of the collectives that were requested:\n" + ras);
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
  write_report(facts.checkpoint_dir / "failure.json", facts.origin.run, verdict,
               report_json(verdict, records, facts.origin));
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
