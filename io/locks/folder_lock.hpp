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
#include <thread>

#include "io/locks/folder_owner.hpp"
#include "io/locks/mount_info.hpp"

namespace mpzero::io {

// Keeps other processes out of a folder for as long as this lives, also when the process is killed.
//
// The file `.lock` in the folder carries a lock that the system drops with the process; it names its owner, and stays.
// Where the file system has no locks, or they do not reach other hosts, the records of FolderOwner do the same, which a
// thread renews: after a kill on another host it takes FolderOwner::kWatch until the folder is free.
class FolderLock {
 public:
  // How long a lock that another process holds is waited for: a run that was killed may still be about to leave.
  static constexpr std::chrono::milliseconds kPatience{5000};

  // What the folder is locked for, which decides what whoever is refused is told.
  enum class Purpose : uint8_t { kTraining, kPruning };

  struct Options {
    std::chrono::milliseconds patience = kPatience;
    Purpose purpose = Purpose::kTraining;
    std::string job{};  // see OwnerRecord
    // Are told, one sentence each: why it takes long; that there are no locks.
    std::function<void(const std::string&)> say{};
    std::function<void(const std::string&)> warn{};
    // flock(2) without waiting, and its errno; how far it reaches; what passes time; how often a thread renews the
    // record, never where it is 0. A test brings its own.
    std::function<int(int descriptor)> flock{};
    std::optional<LockReach> reach{};
    WaitingClock clock = system_clock();
    std::chrono::milliseconds renewal = FolderOwner::kRenewal;
  };

  // Throws UserError naming the owner if another process holds the lock for longer than `patience`, or its record shows
  // that it is at work.
  explicit FolderLock(const std::filesystem::path& folder, const Options& options, FileSystem& files = disk());
  explicit FolderLock(const std::filesystem::path& folder) : FolderLock(folder, Options()) {}
  ~FolderLock();
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

  // From any thread: throws FolderTaken, naming who, where another process has taken the folder over. Where the lock
  // reaches all processes it alone decides; a folder or a file `.lock` that is gone is made and locked anew.
  void check();
  // For those who are refused.
  void set_run(const std::string& run);

 private:
  // Whether there is a lock on the folder now, or locks are missing.
  bool lock(const std::filesystem::path& path, const Options& options);
  // Throws what keeps the record from being written, but for a full disk where the lock decides: that is a warning.
  void claim(const Options& options, FileSystem& files);
  // Throws FolderTaken where `.lock` is another's by now.
  void hold_lock();
  void renew_until(const std::stop_token& stop, std::chrono::milliseconds renewal);

  std::filesystem::path folder_;
  std::function<int(int descriptor)> flock_;
  bool decides_ = false;  // the lock, which reaches all processes
  std::mutex holding_;
  int descriptor_ = -1;
  std::optional<FolderOwner> owner_;
  std::mutex mutex_;
  std::condition_variable_any wake_;
  std::jthread renewal_;
};

}  // namespace mpzero::io
