#pragma once

#include <atomic>
#include <chrono>
#include <filesystem>
#include <functional>
#include <string>

#include "parallel/mpi/deadline.hpp"

namespace mpzero::doctor {

// A look at something that may keep its caller for ever: a driver, a file system, a library.
struct Look {
  const char* check;   // of the finding
  const char* at;      // what it is, for a sentence: "the GPU driver"
  const char* remedy;  // once it has hung
};

// Ends the doctor where one look at this host takes too long, so that a host that hangs is told like any other: it
// leaves a report of this host alone, to_json() with one failure, at hang_report(). Ranks that merely wait for others
// leave the word to them.
class HangWatch {
 public:
  // `json`: the file of --json; empty: no report. `end` is given the sentence, and ends the process.
  HangWatch(std::string host, std::string json, std::chrono::milliseconds patience,
            std::function<void(const std::string&)> end = parallel::end_process);

  // What this rank looks at until the next call. `look` outlives the watch.
  void enter(const Look& look) { look_ = &look; }
  // From now on this rank waits for others.
  void leave() { look_ = nullptr; }

 private:
  std::string last_words();

  const std::string host_;
  const std::string json_;
  const std::chrono::milliseconds patience_;
  std::atomic<const Look*> look_ = nullptr;
  parallel::Deadline deadline_;
};

// FILE.HOST.hung, beside the report FILE that could not be written.
std::filesystem::path hang_report(const std::string& json, const std::string& host);

}  // namespace mpzero::doctor
