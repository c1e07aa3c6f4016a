#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

namespace mpzero::parallel {

// Prints the sentence as an error of mpzero and ends the process at once, with kFailureExitCode; the launcher then ends
// the other ranks. Cleaning up would wait for what hangs.
void end_process(const std::string& sentence);

// Runs `work` on a thread of its own and goes on after `limit` even if that still stands; `work` keeps what it needs.
// Whether it was done.
bool no_longer_than(std::chrono::milliseconds limit, std::function<void()> work);

// Ends the process where the work that goes on while this lives takes longer than `patience`: for calls into the
// network or a file system that have no limit of their own.
class Deadline {
 public:
  // `sentence` is asked for on a thread of its own once the time is up.
  Deadline(std::chrono::milliseconds patience, std::function<std::string()> sentence,
           std::function<void(const std::string&)> end = end_process);
  ~Deadline();
  Deadline(const Deadline&) = delete;
  Deadline& operator=(const Deadline&) = delete;

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool met_ = false;
  std::thread thread_;
};

}  // namespace mpzero::parallel
