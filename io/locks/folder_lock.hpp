#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <thread>

#include "io/files/open_folder.hpp"
#include "io/locks/folder_owner.hpp"

namespace mpzero::io {

// A mounted file system from /proc/self/mountinfo (see proc(5)).
struct Mount {
  std::string type;     // "ext4", "nfs4", "lustre"
  std::string options;  // mount and file system options, each between commas
};

// Returns the mount that contains the absolute path, or std::nullopt if `mountinfo` does not list it.
std::optional<Mount> find_mount(std::string_view mountinfo, const std::filesystem::path& path);

// Scope of a flock(2) lock on a mount: the processes that it excludes.
enum class LockReach : uint8_t {
  kAll,       // all processes that can access the file
  kThisHost,  // only processes on this host
  kUnknown,
};
LockReach lock_reach(const Mount& mount);

// Returns the scope of file locks on the mount that contains `folder`, or kUnknown if /proc/self/mountinfo cannot be
// read.
LockReach lock_reach_of(const std::filesystem::path& folder);

// Excludes other processes from a folder during the lifetime of this object.
//
// The lock file `.lock` in the folder records the owner, and remains in every folder of a run. The operating system
// releases the lock when the process ends. On file systems without locks, or with locks that are local to a host, a
// FolderOwner record, which a thread renews, replaces the lock. If a process on another host is killed, the folder
// becomes available after FolderOwner::kWatch.
class FolderLock {
 public:
  static constexpr const char* kFile = ".lock";
  // Timeout for a folder that another process has locked, for example a process of a killed run that is still exiting.
  static constexpr std::chrono::milliseconds kPatience{5000};
  // Timeout for a process of a requeued job's previous attempt to exit. The process may be blocked in the file system
  // or a driver.
  static constexpr std::chrono::minutes kPatienceWithPredecessor{10};

  // Purpose of the lock, which determines the text of messages.
  enum class Purpose : uint8_t { kTraining, kPruning };

  struct Options {
    std::chrono::milliseconds patience = kPatience;
    Purpose purpose = Purpose::kTraining;
    std::string job{};  // see OwnerRecord::job
    // Timeout if the owner belongs to the same job; 0: same as `patience`.
    std::chrono::milliseconds patience_with_predecessor{};
    // Callbacks for messages: `say` receives the reason for a long wait, and `warn` receives warnings about file locks.
    std::function<void(const std::string&)> say{};
    std::function<void(const std::string&)> warn{};
    // Replaceable in tests: nonblocking flock(2) that returns an errno, the scope of locks, the clock, and the renewal
    // interval of the record (0 disables renewal).
    std::function<int(int descriptor)> flock{};
    std::optional<LockReach> reach{};
    WaitingClock clock = system_clock();
    std::chrono::milliseconds renewal = FolderOwner::kRenewal;
  };

  // Throws UserError, with the owner in the message, if another process keeps the lock for longer than `patience` or
  // has an active record. Throws Failure if that process belongs to the same job and exceeds
  // `patience_with_predecessor`.
  explicit FolderLock(const std::filesystem::path& folder, const Options& options, FileSystem& files = disk());
  explicit FolderLock(const std::filesystem::path& folder) : FolderLock(folder, Options()) {}
  ~FolderLock();
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

  // Throws FolderTaken, with the new owner in the message, if another process owns the folder. Throws Failure if the
  // folder is missing or is now on a different file system. If the lock excludes all other processes, recreates and
  // locks a missing `.lock` file. Thread-safe.
  void check();
  // Removes the lock file and the owner record, for a folder that the run leaves unused. Only the destructor may be
  // called afterwards.
  void remove();
  // Records the run's id, so that messages from other processes can include it.
  void set_run(const std::string& run);

 private:
  // Returns true if the folder is now locked, false if the file system has no locks.
  bool lock(const Options& options);
  // Returns true if the path of the lock file still refers to the open file.
  bool is_named() const;
  // Returns normally if the caller should retry the lock, and throws otherwise. `waited` is the total wait time so far.
  void wait_for_predecessor(const Options& options, std::chrono::milliseconds waited);
  // Writes the owner record. Throws on error, but only warns about a full disk if the lock excludes all other
  // processes.
  void claim(const Options& options);
  void check_folder() const;
  // Throws FolderTaken if another process has the lock.
  void hold_lock();
  void renew_until(const std::stop_token& stop, std::chrono::milliseconds renewal);

  std::filesystem::path folder_;
  FileSystem& files_;
  std::filesystem::path path_;  // lock file
  Inode inode_;                 // folder inode at the start
  std::function<int(int descriptor)> flock_;
  bool decides_ = false;  // the lock excludes all other processes, so records are not needed
  bool waits_ = false;    // true after the wait for a predecessor was logged
  std::mutex holding_;
  int descriptor_ = -1;
  std::optional<FolderOwner> owner_;
  std::mutex mutex_;
  std::condition_variable_any wake_;
  std::jthread renewal_;
};

}  // namespace mpzero::io
