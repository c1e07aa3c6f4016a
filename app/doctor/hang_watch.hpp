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

// A check of something that may block its caller forever: a driver, a file system, a library.
struct Look {
  Check check;         // of the finding
  const char* at;      // what is checked, as part of a sentence: "the GPU driver"
  const char* remedy;  // if the check hangs
};

// Exit status of a doctor that its watch has ended; mpzero has no other such status.
inline constexpr int kHungExitCode = 122;

// Prints the sentence as an mpzero error and ends the process at once with kHungExitCode.
void end_hung(const std::string& sentence);

// Ends the doctor when a check of this host takes too long, so that a host that hangs is reported like any other. It
// prints one line on stderr,
//
//   mpzero: doctor: HOST hangs in CHECK (job JOB, restart N): SENTENCE
//
// and then writes a report of only this host, to_json() with one failure, to hang_report(), since the report's file
// system may hang itself. scripts/requeue reads either. Ranks that only wait for others let those report. A rank that
// has checked a folder also writes to the report's folder, and then reports "answers" instead of "hangs" in
// answer_report() and on stderr: a folder that responds on one host does not hang on all.
class HangWatch {
 public:
  using Write = std::function<void(const std::filesystem::path& file, const std::string& text)>;

  // `json`: the file of --json; empty: no report. `end` receives the sentence and ends the process.
  HangWatch(std::string host, std::string json, JobStart start, std::chrono::milliseconds patience,
            std::function<void(const std::string&)> end = end_hung, Write write = write_file);

  // Sets the check that this rank runs until the next call. `look` must outlive the watch.
  void enter(const Look& look) { change(&look); }
  // This rank waits for others from now on.
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
  std::atomic<bool> folder_answered_ = false;  // a check of a folder has returned
  parallel::Deadline deadline_;
};

// FILE.HOST.hung, next to the report FILE that could not be written.
std::filesystem::path hang_report(const std::string& json, const std::string& host);

// FILE.HOST.answers, written by a host that waits for a hung one.
std::filesystem::path answer_report(const std::string& json, const std::string& host);

}  // namespace mpzero::doctor
