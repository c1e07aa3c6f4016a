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

// Reserves a folder for one process without using file locks. Intended for file systems without flock(2) or with locks
// that are local to a host.
//
// The `.owner-<n>` file with the largest n contains the record of the owner: its identity and the number of renewals.
// Each process writes only to its own file, and files are created with O_EXCL.
//
// A single `.owner` file, replaced by a rename in each claim, would be simpler, but a rename is not a compare-and-swap:
// a claim that is delayed after its last read would replace the record of an active owner, possibly during a save.
// Creating the file with the next number with O_EXCL is a compare-and-swap.
//
//   claim     1. Read the files. If there are none, n = 1. If the last owner is alive, refuse the claim. If the last
//                owner is dead, use its n + 1.
//             2. Create `.owner-<n>` with O_EXCL. If the file already exists, restart from step 1.
//             3. Read the files again. If a larger n exists, or if the dead owner's record has changed since step 1,
//                remove the new file and restart from step 1.
//             4. Remove the files with smaller n.
//   renew     Write the next count to this process's file, then read all files. If this file is missing or a larger
//             n exists, ownership is lost.
//   release   Remove this process's file.
//
//   concurrent           | result
//   ---------------------+-------------------------------------------------------------------------------------------
//   claim, claim         | O_EXCL succeeds for one process; the other process finds a recent record and watches it
//   claim, renew         | either the record changes before step 3, which withdraws the claim, or renew reads after
//                        | step 2, finds the larger n and reports lost ownership
//   claim, release       | the record is missing in step 3; the claim restarts without a predecessor
//   release, then claims | a claim with the dead owner's n + 1 and a claim with n = 1 use different names: step 3
//                        | withdraws the first because the record is missing, and the second because a larger n exists
//   claim, crash         | the remaining record is not renewed and expires
//   renew, crash         | the remaining record is not renewed and expires
namespace mpzero::io {

// Identity of the process that owns a folder.
struct OwnerRecord {
  std::string host;
  std::string kernel;  // boot id and PID namespace; PIDs are comparable if equal
  int64_t pid = 0;
  int64_t start = 0;   // start time in clock ticks; identifies the process even if the PID is reused
  std::string run;     // run id; empty if not yet known
  std::string job;     // job id of the batch system; empty without one
  std::string folder;  // device and inode of the folder; a copied folder has no owner
  std::string token;   // random, one per claim
  int64_t count = 0;   // number of renewals
};

// Thrown if another process owns or may have owned the folder. This process must stop writing to the folder.
class FolderTaken final : public Error {
 public:
  using Error::Error;
  int exit_code() const override { return kFailureExitCode; }
};

// Returns a record of this process with a new token.
OwnerRecord this_owner(const std::string& job);
// Returns text such as "process 12 on node3 (run 1a2b3c4d, job 77)".
std::string show_owner(const OwnerRecord& owner);

// Clock and sleep functions, replaceable in tests.
struct WaitingClock {
  std::function<std::chrono::milliseconds()> now;  // monotonic time
  std::function<void(std::chrono::milliseconds)> wait;
};
WaitingClock system_clock();

class FolderOwner {
 public:
  // kRenewal is the interval between renewals of a record. An owner is considered dead if its record does not change
  // for kWatch. Clocks of different hosts are never compared.
  static constexpr std::chrono::milliseconds kRenewal{5000};
  static constexpr std::chrono::milliseconds kWatch{30000};

  struct Options {
    // True if this process has a file lock that excludes all other processes, so older records are stale.
    bool has_lock = false;
    WaitingClock clock = system_clock();
    // Called once with a reason if the claim has to wait.
    std::function<void(const std::string&)> say{};
    std::string remedy{};  // end of the error message for a refused claim
  };
  // Throws UserError, with the owner in the message, if the folder has an active owner. An owner on this host is dead
  // if its process no longer exists. If the state of the process is unknown, for example on another host, the owner is
  // considered dead if its record does not change for kWatch.
  FolderOwner(std::filesystem::path folder, OwnerRecord self, const Options& options, FileSystem& files = disk());
  // Removes the record unless another process owns the folder.
  ~FolderOwner();
  FolderOwner(const FolderOwner&) = delete;
  FolderOwner& operator=(const FolderOwner&) = delete;

  // Renews the record. Throws FolderTaken if another process owns the folder. Thread-safe.
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
  // Returns true if the file `number` exists and has the largest number.
  bool is_last(int64_t number) const;
  // Returns the record with the largest number, or std::nullopt if no record exists.
  std::optional<Found> last() const;
  std::optional<std::string> read(int64_t number) const;
  // Waits until the owner is dead or its record has been replaced. Throws if the owner is alive.
  void watch(const Found& found, const Options& options) const;
  // Performs steps 2 and 3 of a claim (see above). Returns false if the claim must restart.
  bool try_to_claim(const std::optional<Found>& heir_to);
  void write();
  void remove_own() noexcept;  // also closes the file

  std::filesystem::path folder_;
  FileSystem& files_;
  std::mutex mutex_;
  OwnerRecord self_;
  int64_t number_ = 0;
  std::optional<File> file_;  // this process's record, even if the path refers to a different file
};

}  // namespace mpzero::io
