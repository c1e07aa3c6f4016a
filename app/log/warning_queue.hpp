#pragma once

#include <fmt/format.h>

#include <cstdio>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "base/output.hpp"
namespace mpzero {

// Warnings of other threads than the one that trains: printed at once, and kept until that one records them.
class WarningQueue {
 public:
  // From any thread.
  void warn(std::string line) {
    print_warning(line);
    const std::lock_guard lock(mutex_);
    lines_.push_back(std::move(line));
  }
  bool empty() const {
    const std::lock_guard lock(mutex_);
    return lines_.empty();
  }
  // All that were added since the last call.
  std::vector<std::string> take() {
    const std::lock_guard lock(mutex_);
    return std::exchange(lines_, {});
  }

 private:
  mutable std::mutex mutex_;
  std::vector<std::string> lines_;
};

}  // namespace mpzero
