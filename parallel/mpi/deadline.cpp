#include "parallel/mpi/deadline.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <memory>
#include <utility>

#include "base/error.hpp"
#include "base/output.hpp"

namespace mpzero::parallel {
namespace {

// Maximum that can be added to a time point in 64-bit nanoseconds without overflow.
constexpr std::chrono::milliseconds kLongest = std::chrono::years(100);

}  // namespace

void end_process(const std::string& sentence) {
  print_err("mpzero: error: {}\n", sentence);
  std::_Exit(kFailureExitCode);
}

bool run_detached(const std::function<void()>& work) {
  try {
    std::thread(work).detach();
    return true;
  } catch (const std::exception&) {  // the limit on processes or memory has been reached
    return false;
  }
}

bool no_longer_than(std::chrono::milliseconds limit, std::function<void()> work) {
  const auto done = std::make_shared<std::atomic<bool>>(false);
  const auto run = [done, work = std::move(work)] {
    work();
    *done = true;
  };
  if (!run_detached(run)) run();
  for (const auto start = std::chrono::steady_clock::now();
       !*done && std::chrono::steady_clock::now() - start < limit;) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return *done;
}

std::chrono::milliseconds to_milliseconds(double seconds) {
  using Seconds = std::chrono::duration<double>;
  return std::chrono::ceil<std::chrono::milliseconds>(std::min(Seconds(seconds), Seconds(kLongest)));
}

Deadline::Deadline(std::chrono::milliseconds patience, std::function<std::string()> sentence,
                   std::function<void(const std::string&)> end)
    : thread_([this, patience, sentence = std::move(sentence), end = std::move(end)] {
        std::unique_lock lock(mutex_);
        if (!changed_.wait_for(lock, std::min(patience, kLongest), [this] { return met_; })) end(sentence());
      }) {}

Deadline::~Deadline() {
  {
    const std::lock_guard lock(mutex_);
    met_ = true;
  }
  changed_.notify_one();
  thread_.join();
}

}  // namespace mpzero::parallel
