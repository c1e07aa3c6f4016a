#pragma once

#include <fmt/format.h>

#include <cstdio>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "base/output.hpp"
namespace mpzero {

// Warnings from threads other than the training thread. Warnings are printed immediately and queued for the training
// thread.
class WarningQueue {
 public:
  // Prints and queues a warning. Thread-safe.
  void warn(std::string line) {
    print_warning(line);
    const std::lock_guard lock(mutex_);
    lines_.push_back(std::move(line));
  }
  bool empty() const {
    const std::lock_guard lock(mutex_);
    return lines_.empty();
  }
  // Removes and returns the queued warnings.
  std::vector<std::string> take() {
    const std::lock_guard lock(mutex_);
    return std::exchange(lines_, {});
  }

 private:
  mutable std::mutex mutex_;
  std::vector<std::string> lines_;
};

}  // namespace mpzero
