#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>

namespace mpzero::parallel {

// Prints the error message `sentence` and ends the process immediately with kFailureExitCode. The launcher then
// terminates the other ranks. Cleanup is skipped because it could also hang.
void end_process(const std::string& sentence);

// Runs `work` on a detached thread. Returns false, without running `work`, if the thread cannot be started. `work` must
// own its data and must not throw.
bool run_detached(const std::function<void()>& work);

// Runs `work` with run_detached() and waits for at most `limit`. Returns true if `work` completed. If no thread can be
// started, runs `work` on the calling thread, without a limit.
bool no_longer_than(std::chrono::milliseconds limit, std::function<void()> work);

// Returns the result of `work`, or std::nullopt if `work` throws or takes longer than `limit`. `work` must own its
// data.
template <class Work>
auto answer_within(std::chrono::milliseconds limit, Work work) {
  struct Answer {
    std::mutex mutex;
    std::optional<std::invoke_result_t<Work>> value;
  };
  const auto answer = std::make_shared<Answer>();
  const auto ask = [answer, work = std::move(work)] {
    try {
      auto value = work();
      const std::lock_guard lock(answer->mutex);
      answer->value = std::move(value);
    } catch (const std::exception&) {  // answer->value stays empty
    }
  };
  no_longer_than(limit, ask);
  const std::lock_guard lock(answer->mutex);
  return std::optional(answer->value);
}

// Converts seconds to milliseconds, rounded up. The result is at most a hundred years, so that adding it to a time
// point does not overflow.
std::chrono::milliseconds to_milliseconds(double seconds);

// Ends the process if this object lives longer than `patience`. A Deadline guards network and file system calls that
// have no timeout.
class Deadline {
 public:
  // `sentence` returns the error message; called on a separate thread after the deadline. `patience` is limited to a
  // hundred years.
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
