#pragma once

#include <atomic>
#include <chrono>
#include <filesystem>
#include <functional>
#include <string>

#include "app/doctor/report.hpp"
#include "app/machine/finding.hpp"
#include "parallel/mpi/deadline.hpp"

namespace mpzero::doctor {

// A check that may block forever in a driver, a file system or a library.
struct Look {
  Check check;         // check to report
  const char* at;      // checked component, as the subject of a sentence: "the GPU driver"
  const char* remedy;  // remedy if the check hangs
};

// Exit status of mpzero doctor after a hang; not used otherwise.
inline constexpr int kHungExitCode = 122;

// Prints `sentence` as an error and immediately ends the process with kHungExitCode.
void end_hung(const std::string& sentence);

// Ends mpzero doctor if a check on this host exceeds the timeout. Prints one line to stderr,
//
//   mpzero: doctor: HOST hangs in CHECK (job JOB, restart N): SENTENCE
//
// and then writes a report with one failure for this host, in the format of to_json(), to hang_report().
// scripts/requeue reads both the line and the report, because the file system of the report may also hang. Ranks that
// wait for other ranks do not report a hang. If a waiting rank has completed the check of a folder, the rank writes
// answer_report() and prints "responds" instead of "hangs", because the folder does not hang on all hosts.
class HangWatch {
 public:
  using Write = std::function<void(const std::filesystem::path& file, const std::string& text)>;

  // `json`: path from --json; empty: no report. `patience`: timeout. `end`: called with the error message; must end the
  // process.
  HangWatch(std::string host, std::string json, JobStart start, std::chrono::milliseconds patience,
            std::function<void(const std::string&)> end = end_hung, Write write = write_file);

  // Sets the current check of this rank. `look` must outlive the watch.
  void enter(const Look& look) { change(&look); }
  // Records that this rank is waiting for other ranks.
  void leave() { change(nullptr); }

 private:
  void change(const Look* next);
  std::string last_message();
  void print_line(const char* verb, const Finding& finding) const;
  bool write_report(const std::filesystem::path& file, const Finding& finding) const;
  static void write_file(const std::filesystem::path& file, const std::string& text);

  const std::string host_;
  const std::string json_;
  const JobStart start_;
  const Write write_;
  const std::chrono::milliseconds patience_;
  std::atomic<const Look*> look_ = nullptr;
  std::atomic<bool> folder_answered_ = false;  // the check of a folder has completed
  parallel::Deadline deadline_;
};

// Returns the path of the report on the hung host `host`: FILE.HOST.hung for `json` FILE.
std::filesystem::path hang_report(const std::string& json, const std::string& host);

// Returns the path of the report on a host that waits for a hung host: FILE.HOST.answers for `json` FILE.
std::filesystem::path answer_report(const std::string& json, const std::string& host);

}  // namespace mpzero::doctor
