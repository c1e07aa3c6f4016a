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

// A mounted file system, as a line of /proc/self/mountinfo describes it (proc(5)).
struct Mount {
  std::string type;     // "ext4", "nfs4", "lustre"
  std::string options;  // of the mount and of the file system, with a comma before and after each
};

// The mount that holds the absolute path. std::nullopt if the table has none.
std::optional<Mount> find_mount(std::string_view mountinfo, const std::filesystem::path& path);

// Which processes a flock(2) on a file of this mount excludes.
enum class LockReach : uint8_t {
  kAll,       // every process that can reach the file
  kThisHost,  // other hosts that mount it are not affected
  kUnknown,
};
LockReach lock_reach(const Mount& mount);

// From this machine's table. kUnknown if it cannot be read.
LockReach lock_reach_of(const std::filesystem::path& folder);

// Keeps other processes out of a folder during its lifetime. Also released when the process is killed.
//
// The lock is on a file in the folder, which names its owner: `.lock`, which is never removed, or for a conversion
// `.zero_to_fp32.lock`, which is removed with the lock. The system releases the lock when the process ends. On file
// systems without locks, or with locks that do not reach other hosts, the records of FolderOwner replace it. A thread
// renews them. After a process on another host is killed, the folder becomes free after FolderOwner::kWatch.
class FolderLock {
 public:
  // How long to wait for a lock that another process holds: a killed run may still be exiting.
  static constexpr std::chrono::milliseconds kPatience{5000};
  // How long a requeued job waits for a process of its own earlier start, which may be unable to exit while the file
  // system or a driver does not respond.
  static constexpr std::chrono::minutes kPatienceWithPredecessor{10};

  // The purpose of the lock. Selects the files and the wording of messages.
  enum class Purpose : uint8_t { kTraining, kPruning, kExporting };

  struct Options {
    std::chrono::milliseconds patience = kPatience;
    Purpose purpose = Purpose::kTraining;
    std::string job{};  // see OwnerRecord
    // Longer patience if the owner is of the same job. Zero: no longer patience.
    std::chrono::milliseconds patience_with_predecessor{};
    // Callbacks that receive one sentence each: why locking takes long; that there are no locks.
    std::function<void(const std::string&)> say{};
    std::function<void(const std::string&)> warn{};
    // flock(2) without waiting, returning its errno; how far it reaches; the clock; how often a thread renews the
    // record (0: never). Tests replace them.
    std::function<int(int descriptor)> flock{};
    std::optional<LockReach> reach{};
    WaitingClock clock = system_clock();
    std::chrono::milliseconds renewal = FolderOwner::kRenewal;
  };

  // Throws UserError naming the owner if another process holds the lock for longer than `patience`, or if its record
  // shows that it is active. Throws Failure if it is of the same job and outlives `patience_with_predecessor`.
  explicit FolderLock(const std::filesystem::path& folder, const Options& options, FileSystem& files = disk());
  explicit FolderLock(const std::filesystem::path& folder) : FolderLock(folder, Options()) {}
  ~FolderLock();
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

  // Thread-safe. Throws FolderTaken, naming the new owner, if another process has taken over the folder, and Failure
  // while the folder is missing or on another file system than at the start. If the lock reaches all processes, it
  // alone decides, and a `.lock` file that was removed, or is missing in a folder that a user recreated, is created and
  // locked again.
  void check();
  // Records the run's id for messages to other processes.
  void set_run(const std::string& run);

 private:
  // Returns true if the folder is now locked, false if the file system has no locks.
  bool lock(const Options& options);
  // Whether the lock file's path still refers to the open file.
  bool is_named() const;
  // Returns if the lock should be tried again. `waited`: time spent waiting so far.
  void wait_for_predecessor(const Options& options, std::chrono::milliseconds waited);
  // Throws if the record cannot be written. If the lock decides, a full disk is only a warning.
  void claim(const Options& options);
  void check_folder() const;
  // Throws FolderTaken if another process now holds the lock.
  void hold_lock();
  void renew_until(const std::stop_token& stop, std::chrono::milliseconds renewal);

  std::filesystem::path folder_;
  FileSystem& files_;
  std::filesystem::path path_;  // of the lock file
  bool removes_;                // the lock file at the end
  Inode inode_;                 // of the folder, at the start
  std::function<int(int descriptor)> flock_;
  bool decides_ = false;  // the lock reaches all processes and decides alone
  bool waits_ = false;    // the wait for a predecessor was logged
  std::mutex holding_;
  int descriptor_ = -1;
  std::optional<FolderOwner> owner_;
  std::mutex mutex_;
  std::condition_variable_any wake_;
  std::jthread renewal_;
};

}  // namespace mpzero::io
