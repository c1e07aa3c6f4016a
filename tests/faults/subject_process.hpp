#pragma once

#include <sys/types.h>

#include <array>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "tests/faults/disk_calls.hpp"
#include "tests/faults/outcome.hpp"

namespace mpzero::faults {

// Exit status of fault_subject, in addition to mpzero's exit statuses.
inline constexpr int kUnexpectedExitCode = 3;
inline constexpr int kDamagedExitCode = 4;

// A fault of the preloaded library; see disk_faults.cpp.
struct DiskFault {
  std::string what;              // e.g. "write:3:ENOSPC", with the errno by name; empty: none
  std::filesystem::path folder;  // only calls in this folder are counted
  std::string path;              // only calls whose path contains this text are counted
};

// A run of fault_subject in a separate process, which is killed when this process ends. Two simultaneous runs need
// different `scratch`.
class SubjectProcess {
 public:
  SubjectProcess(const std::filesystem::path& programs, const std::vector<std::string>& words, const DiskFault& fault,
                 const std::filesystem::path& scratch);
  ~SubjectProcess();
  SubjectProcess(const SubjectProcess&) = delete;
  SubjectProcess& operator=(const SubjectProcess&) = delete;

  // Waits until the process ends or the fault stops it. Returns false if the process has ended.
  bool wait_for_stop();
  void go_on();
  void wait();

  // Must be called after the process has ended.
  bool succeeded() const;
  bool was_killed() const;
  // Returns the number of calls of each kind, even if the process was killed. The last entry is the total.
  std::array<uint64_t, kDiskCalls + 1> calls() const;
  std::string output() const;
  // Returns the verdict of judge_exception() on the message of a run that failed and was not killed.
  Verdict judge(const std::filesystem::path& place) const;

 private:
  std::filesystem::path file(const char* name) const;

  std::filesystem::path scratch_;
  pid_t pid_ = -1;
  int status_ = 0;
};

}  // namespace mpzero::faults
