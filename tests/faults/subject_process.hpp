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

// Exit status of fault_subject, in addition to mpzero's own.
inline constexpr int kUnexpectedExitCode = 3;
inline constexpr int kDamagedExitCode = 4;

// A fault of the preloaded library; see disk_faults.cpp.
struct DiskFault {
  std::string what;              // e.g. "write:3:ENOSPC", with the errno by name; empty: none
  std::filesystem::path folder;  // the folder of the counted calls
  std::string path;              // only calls whose path contains this
};

// A run of fault_subject, in a process that is killed with this one. Two simultaneous runs need different `scratch`.
class SubjectProcess {
 public:
  SubjectProcess(const std::filesystem::path& programs, const std::vector<std::string>& words, const DiskFault& fault,
                 const std::filesystem::path& scratch);
  ~SubjectProcess();
  SubjectProcess(const SubjectProcess&) = delete;
  SubjectProcess& operator=(const SubjectProcess&) = delete;

  // Waits until it ends, or until the fault has stopped it. Returns false if it has ended.
  bool wait_for_stop();
  void go_on();
  void wait();

  // Call after it has ended.
  bool succeeded() const;
  bool was_killed() const;
  // The number of calls of each kind, also after a kill. The last entry is the total.
  std::array<uint64_t, kDiskCalls + 1> calls() const;
  std::string output() const;
  // For a run that did not succeed and was not killed: judge_exception() for its message.
  Verdict judge(const std::filesystem::path& place) const;

 private:
  std::filesystem::path file(const char* name) const;

  std::filesystem::path scratch_;
  pid_t pid_ = -1;
  int status_ = 0;
};

}  // namespace mpzero::faults
