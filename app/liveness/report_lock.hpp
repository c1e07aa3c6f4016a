#pragma once

#include <chrono>
#include <filesystem>

#include "app/liveness/link/control_channel.hpp"

namespace mpzero {

// Lets one process at a time compare its verdict with the one in a file and replace it: the lock, flock(2), is held on
// FILE.lock. The system releases it when the process ends, however it ends. The file is removed only by its holder.
class ReportLock {
 public:
  // Waits up to `limit` for a process that holds it, which may be stopped.
  ReportLock(const std::filesystem::path& file, std::chrono::milliseconds limit);
  ~ReportLock();
  ReportLock(const ReportLock&) = delete;
  ReportLock& operator=(const ReportLock&) = delete;

  // False after the limit, or where the file cannot be made or the file system has no locks.
  bool is_held() const { return static_cast<bool>(held_); }

 private:
  std::filesystem::path path_;
  Descriptor held_;
};

}  // namespace mpzero
