#pragma once

#include <filesystem>
#include <functional>
#include <optional>

#include "io/files/file_system.hpp"
#include "io/locks/mount_info.hpp"

namespace mpzero::io {

// Keeps other conversions out of an output folder during its lifetime. The lock is on the file `.zero_to_fp32.lock`,
// which names its owner and is removed with the lock. If a process is killed, the system releases its lock, so the file
// that it leaves blocks nobody. On file systems without locks, or with locks that may not reach other hosts, the
// existence of the file is the lock: the file of a killed process must be removed by hand, and the error says so.
class ExportLock {
 public:
  // Takes the lock of an open file without waiting, as flock(2) does: returns 0 or an errno.
  using LockCall = std::function<int(int descriptor)>;
  static int try_flock(int descriptor);

  // Throws UserError naming the owner if another conversion holds the lock. `reach`: how far `lock` reaches;
  // std::nullopt: as returned by lock_reach_of().
  explicit ExportLock(const std::filesystem::path& folder, FileSystem& files = disk(), const LockCall& lock = try_flock,
                      std::optional<LockReach> reach = {});
  ~ExportLock();
  ExportLock(const ExportLock&) = delete;
  ExportLock& operator=(const ExportLock&) = delete;

 private:
  // Returns false if the file was removed while it was being locked: its owner was about to exit.
  bool try_to_take(const std::filesystem::path& folder, const LockCall& lock);
  // Whether the path still refers to the open file. If the system cannot tell, closes the file and throws.
  bool is_named();

  FileSystem& files_;
  std::filesystem::path path_;
  int descriptor_ = -1;
};

}  // namespace mpzero::io
