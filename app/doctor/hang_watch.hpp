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
  const char* remedy;  // for the case that it hangs
};

// Ends the doctor when a check of this host takes too long, so that a host that hangs is reported like any other: it
// writes a report of this host alone, to_json() with one failure, to hang_report(). Ranks that only wait for others let
// those report.
class HangWatch {
 public:
  // `json`: the file of --json; empty: no report. `end` receives the sentence and ends the process.
  HangWatch(std::string host, std::string json, JobStart start, std::chrono::milliseconds patience,
            std::function<void(const std::string&)> end = parallel::end_process);

  // What this rank checks until the next call. `look` must outlive the watch.
  void enter(const Look& look) { look_ = &look; }
  // This rank waits for others from now on.
  void leave() { look_ = nullptr; }

 private:
  std::string last_message();

  const std::string host_;
  const std::string json_;
  const JobStart start_;
  const std::chrono::milliseconds patience_;
  std::atomic<const Look*> look_ = nullptr;
  parallel::Deadline deadline_;
};

// FILE.HOST.hung, next to the report FILE that could not be written.
std::filesystem::path hang_report(const std::string& json, const std::string& host);

}  // namespace mpzero::doctor
