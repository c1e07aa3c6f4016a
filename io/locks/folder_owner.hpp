#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "io/files/atomic_file.hpp"

// Excludes other processes from a folder without file locks: for file systems without flock(2), or whose locks only
// work within one host.
//
// The owner is the file `.owner-<n>` with the largest n. It holds one record: who the owner is and how often it has
// renewed the record. No process writes to another process's file, and files are only created with O_EXCL.
//
//   claim     1. Read the files. If the last one has a living owner: refused. If there is none: n = 1. If its owner is
//                dead: n is one larger.
//             2. Create `.owner-<n>` with O_EXCL. If it exists by now: start again from 1.
//             3. Read the files again. If there is a larger n, or if the dead owner's record is not as in 1: remove
//                the own file and start again from 1.
//             4. Remove the files with smaller n.
//   renew     Write the next count into the own file, then read the files. If the own file is missing, or there is a
//             larger n, the folder is no longer owned.
//   release   Remove the own file.
//
//   concurrent           | result
//   ---------------------+-------------------------------------------------------------------------------------------
//   claim, claim         | O_EXCL lets one through; the other finds its record, which is recent, and watches it
//   claim, renew         | the record changes before 3 reads it, and the claim is withdrawn; or renew reads after 2
//                        | and finds the larger n: one of the two, in any order
//   claim, release       | the record is missing in 3: the claim is withdrawn and starts again without a predecessor
//   release, then claims | a claim to succeed the old owner and a claim with n = 1 use different names: the first is
//                        | withdrawn in 3 because the record is missing, the second when it finds the larger n
//   claim, crash         | the crash leaves a record that nobody renews
//   renew, crash         | the same
namespace mpzero::io {

// The process that uses a folder.
struct OwnerRecord {
  std::string host;
  std::string kernel;  // the host's boot and the process's PID namespace; pids are comparable if it is equal
  int64_t pid = 0;
  int64_t start = 0;   // start time of the process in kernel ticks, because pids are reused
  std::string run;     // the run's id; empty: not known yet
  std::string job;     // the batch system's job number; empty: none
  std::string folder;  // device and inode of the folder on this kernel: a copy of the folder has no owner
  std::string token;   // random, one per claim
  int64_t count = 0;   // number of renewals
};

// Another process owns the folder now, or may have owned it. This process must no longer write there.
class FolderTaken final : public Error {
 public:
  using Error::Error;
  int exit_code() const override { return kFailureExitCode; }
};

// Start time of a process on this machine, in the PID namespace of the caller: clock ticks since boot (proc(5), field
// 22 of stat). It distinguishes processes that reuse a pid. 0: unknown.
int64_t process_start(int64_t pid);

enum class Life : uint8_t { kAlive, kDead, kUnknown };

// State of the process that had this pid and began at `start` (0: unknown).
Life life_of_process(int64_t pid, int64_t start);

// The record of this process, with a new token.
OwnerRecord this_owner(const std::string& job);
// "process 12 on node3 (run 1a2b3c4d, job 77)".
std::string show_owner(const OwnerRecord& owner);

// Clock and sleep. Tests replace it.
struct WaitingClock {
  std::function<std::chrono::milliseconds()> now;  // monotonic, of this machine
  std::function<void(std::chrono::milliseconds)> wait;
};
WaitingClock system_clock();

class FolderOwner {
 public:
  // How often a record is renewed, and how long a record that is not renewed is watched before its owner counts as
  // dead. Only the watcher's clock measures it: clocks of two hosts are never compared.
  static constexpr std::chrono::milliseconds kRenewal{5000};
  static constexpr std::chrono::milliseconds kWatch{30000};

  struct Options {
    std::string prefix = ".owner-";  // of the file's name
    // Whether a lock that this process holds proves that a recorded owner is no longer active.
    bool has_lock = false;
    WaitingClock clock = system_clock();
    // Called once with the reason if the claim takes long.
    std::function<void(const std::string&)> say{};
    // The beginning and the end of the sentence that refuses the claim.
    std::string other = "another run";
    std::string remedy{};
  };
  // Throws UserError naming the owner if there is an active one. An owner is dead immediately if it ran on this host
  // and its process no longer exists, otherwise if its record does not change while it is watched.
  FolderOwner(std::filesystem::path folder, OwnerRecord self, const Options& options, FileSystem& files = disk());
  // Removes the record, if it is still this object's.
  ~FolderOwner();
  FolderOwner(const FolderOwner&) = delete;
  FolderOwner& operator=(const FolderOwner&) = delete;

  // Thread-safe. Renews the record. Throws FolderTaken if another process now owns the folder.
  void renew();
  // Adds the run's id to the record.
  void set_run(const std::string& run);

 private:
  struct Found {
    int64_t number = 0;
    std::string text;
  };
  std::filesystem::path path_of(int64_t number) const;
  std::vector<int64_t> numbers() const;
  // Whether the file `number` exists and none has a larger number. A new owner removes the files with smaller numbers.
  bool is_last(int64_t number) const;
  // The last record. std::nullopt if there is none.
  std::optional<Found> last() const;
  std::optional<std::string> read(int64_t number) const;
  // Returns when the owner is dead, or is no longer the one that was found. Throws if it is alive.
  void watch(const Found& found, const Options& options) const;
  // Steps 2 and 3.
  bool try_to_claim(const std::optional<Found>& heir_to);
  void write();
  void remove_own() noexcept;  // also closes the file

  std::filesystem::path folder_;
  std::string prefix_;
  FileSystem& files_;
  std::mutex mutex_;
  OwnerRecord self_;
  int64_t number_ = 0;
  std::optional<File> file_;  // still refers to the own file if another file takes its name
};

}  // namespace mpzero::io
