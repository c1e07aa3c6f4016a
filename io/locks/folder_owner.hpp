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

// Keeps other processes out of a folder where no lock does: file systems without flock(2), or whose locks hold on one
// host alone.
//
// The owner is named by the file `.owner-<n>` with the largest n, which holds one record: who it is, and how often it
// has renewed the record. Nobody writes into another's file, and files come to be by O_EXCL alone.
//
//   claim     1. read the files; the last one of a living owner: refused. None: n = 1. A dead owner's: n one larger.
//             2. make `.owner-<n>` with O_EXCL; where it is there by now: again from 1.
//             3. read the files again; where there is a larger n, or the dead owner's record is gone or another than
//                in 1: remove the own file and begin again from 1.
//             4. remove the files with smaller n.
//   renew     write the next count into the own file, then read the files: without the own one, or with a larger n,
//             the folder is no longer owned.
//   release   remove the own file.
//
//   at once              | what happens
//   ---------------------+-------------------------------------------------------------------------------------------
//   claim, claim         | O_EXCL lets one through; the other finds its record, which is young, and watches it
//   claim, renew         | the record changes before 3 reads it, and the claim is withdrawn; or renew reads after 2
//                        | and finds the larger n: one of the two, in any order
//   claim, release       | the record is gone in 3: the claim is withdrawn and begins again, as nobody's heir
//   release, then claims | a claim for the old owner's successor and one for n = 1 do not meet at one name: the first
//                        | is withdrawn in 3 as the record is gone, the second where it finds the larger n
//   claim, crash         | what the crash left is a record that nobody renews
//   renew, crash         | the same
namespace mpzero::io {

// Who is at work in a folder.
struct OwnerRecord {
  std::string host;
  std::string kernel;  // the host's boot and the process's PID namespace: pids mean the same where it is equal
  int64_t pid = 0;
  int64_t start = 0;   // of the process, in the kernel's ticks: pids are used again
  std::string run;     // the run's id; empty: not known yet
  std::string job;     // the batch system's number; empty: none
  std::string folder;  // device and inode of the folder on this kernel: a copy of the folder is nobody's
  std::string token;   // of this claim, at random
  int64_t count = 0;   // of renewals
};

// Another process has the folder now, or may have had it: this one must not write there any more.
class FolderTaken final : public Error {
 public:
  using Error::Error;
  int exit_code() const override { return kFailureExitCode; }
};

// Of this process, with a new token.
OwnerRecord this_owner(const std::string& job);
// "process 12 on node3 (run 1a2b3c4d, job 77)".
std::string show_owner(const OwnerRecord& owner);

// What passes time; a test brings its own.
struct WaitingClock {
  std::function<std::chrono::milliseconds()> now;  // of this machine, never set back
  std::function<void(std::chrono::milliseconds)> wait;
};
WaitingClock system_clock();

class FolderOwner {
 public:
  // How often a record is renewed, and for how long one that is not renewed is watched before its owner counts as dead.
  // The watcher's own clock measures it: clocks of two hosts are never compared.
  static constexpr std::chrono::milliseconds kRenewal{5000};
  static constexpr std::chrono::milliseconds kWatch{30000};

  struct Options {
    // Whether a lock that this process holds proves that an owner that is recorded works no more.
    bool has_lock = false;
    WaitingClock clock = system_clock();
    // Is told why the claim takes long, once.
    std::function<void(const std::string&)> say{};
    // The end of the sentence that refuses.
    std::string remedy;
  };
  // Throws UserError naming the owner where one is at work. The owner is dead at once where it ran on this host and its
  // process is no more, else if its record does not change while it is watched.
  FolderOwner(std::filesystem::path folder, OwnerRecord self, const Options& options, FileSystem& files = disk());
  // Removes the record, if it is still this one's.
  ~FolderOwner();
  FolderOwner(const FolderOwner&) = delete;
  FolderOwner& operator=(const FolderOwner&) = delete;

  // From any thread. Renews the record; throws FolderTaken where the folder is another's by now.
  void renew();
  // Names the run in the record.
  void set_run(const std::string& run);

 private:
  struct Found {
    int64_t number = 0;
    std::string text;
  };
  std::filesystem::path path_of(int64_t number) const;
  std::vector<int64_t> numbers() const;
  // Whether there is such a file, and none with a larger number. An owner that took over removes those before it.
  bool is_last(int64_t number) const;
  // The last record; nothing where there is none.
  std::optional<Found> last() const;
  std::optional<std::string> read(int64_t number) const;
  // Returns when the owner is dead, or is no more the one that was found; throws while it lives.
  void watch(const Found& found, const Options& options) const;
  // Steps 2 and 3.
  bool try_to_claim(const std::optional<Found>& heir_to);
  void write();
  void remove_own() noexcept;  // and closes it

  std::filesystem::path folder_;
  FileSystem& files_;
  std::mutex mutex_;
  OwnerRecord self_;
  int64_t number_ = 0;
  std::optional<File> file_;  // stays the own one when its name has come to be another's
};

}  // namespace mpzero::io
