#pragma once

#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace mpzero {

// Warnings that another thread has printed, until the thread that trains records them.
class WarningQueue {
 public:
  void add(std::string line) {
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
