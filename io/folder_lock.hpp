#pragma once

#include <chrono>
#include <filesystem>

namespace mpzero::io {

// Keeps other runs out of a folder for as long as this lives, also when the process is killed: the system drops the
// lock with it. The file `.lock` in the folder carries it, names its owner, and stays.
class FolderLock {
 public:
  // How long a lock that another process holds is waited for: a run that was killed may still be about to leave.
  static constexpr std::chrono::milliseconds kPatience{5000};

  // Throws UserError naming the owner if another process holds the lock for longer than `patience`. A file system
  // without locks leaves the folder unguarded.
  explicit FolderLock(const std::filesystem::path& folder, std::chrono::milliseconds patience = kPatience);
  ~FolderLock();
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

 private:
  int descriptor_ = -1;
};

}  // namespace mpzero::io
