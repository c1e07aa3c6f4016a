#pragma once

#include <filesystem>
#include <functional>
#include <optional>

#include "io/files/file_system.hpp"
#include "io/locks/mount_info.hpp"

namespace mpzero::io {

// Keeps other conversions out of an output folder for as long as this lives. The file `.zero_to_fp32.lock` carries the
// lock and names its owner; it goes with the lock. The system drops the lock of a process that is killed, so that the
// file it leaves is in nobody's way. Where a file system has no locks, or they may not reach other hosts, the file's
// existence is the lock: what a killed process leaves there has to be removed by hand, and the error says so.
class ExportLock {
 public:
  // Takes the lock of an open file if nobody has it, as flock(2) does: 0 or an errno.
  using LockCall = std::function<int(int descriptor)>;
  static int try_flock(int descriptor);

  // Throws UserError naming the owner where another conversion has the lock. `reach` is how far `lock` reaches there;
  // nothing: as lock_reach_of() says.
  explicit ExportLock(const std::filesystem::path& folder, FileSystem& files = disk(), const LockCall& lock = try_flock,
                      std::optional<LockReach> reach = {});
  ~ExportLock();
  ExportLock(const ExportLock&) = delete;
  ExportLock& operator=(const ExportLock&) = delete;

 private:
  // False where the file went while it was being locked: its owner was about to leave.
  bool try_to_take(const std::filesystem::path& folder, const LockCall& lock);
  // Whether the name still leads to the open file. Throws, the file closed, where the system does not tell.
  bool is_named();

  FileSystem& files_;
  std::filesystem::path path_;
  int descriptor_ = -1;
};

}  // namespace mpzero::io
