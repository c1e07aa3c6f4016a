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

// Of fault_subject, beside mpzero's own.
inline constexpr int kUnexpectedExitCode = 3;
inline constexpr int kDamagedExitCode = 4;

// A fault of the preloaded library; see disk_faults.cpp.
struct DiskFault {
  std::string what;              // e.g. "write:3:ENOSPC", with the errno by its name; empty: none
  std::filesystem::path folder;  // that it is in
  std::string path;              // only calls whose path holds this
};

// A run of fault_subject, in a process that dies with this one. No two at a time may have the same `scratch`.
class SubjectProcess {
 public:
  SubjectProcess(const std::filesystem::path& programs, const std::vector<std::string>& words, const DiskFault& fault,
                 const std::filesystem::path& scratch);
  ~SubjectProcess();
  SubjectProcess(const SubjectProcess&) = delete;
  SubjectProcess& operator=(const SubjectProcess&) = delete;

  // Until it ends, or until the fault has stopped it; false where it has ended.
  bool wait_for_stop();
  void go_on();
  void wait();

  // Once it has ended.
  bool succeeded() const;
  bool was_killed() const;
  // How many calls of each kind there were, also after a kill; the last is of all kinds.
  std::array<uint64_t, kDiskCalls + 1> calls() const;
  std::string output() const;
  // Of one that did not succeed and was not killed: judge_exception() for what it said.
  Verdict judge(const std::filesystem::path& place) const;

 private:
  std::filesystem::path file(const char* name) const;

  std::filesystem::path scratch_;
  pid_t pid_ = -1;
  int status_ = 0;
};

}  // namespace mpzero::faults
