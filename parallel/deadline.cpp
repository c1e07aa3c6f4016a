#include "parallel/deadline.hpp"

#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>
#include <utility>

#include "base/error.hpp"

namespace mpzero::parallel {

void end_process(const std::string& sentence) {
  fmt::print(stderr, "mpzero: error: {}\n", sentence);
  std::fflush(stderr);
  std::_Exit(kFailureExitCode);
}

Deadline::Deadline(std::chrono::milliseconds patience, std::function<std::string()> sentence,
                   std::function<void(const std::string&)> end)
    : thread_([this, patience, sentence = std::move(sentence), end = std::move(end)] {
        std::unique_lock lock(mutex_);
        if (!changed_.wait_for(lock, patience, [this] { return met_; })) end(sentence());
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
