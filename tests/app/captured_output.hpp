#pragma once

#include <unistd.h>

#include <cstdio>
#include <stdexcept>
#include <string>

#include "base/collectives.hpp"
#include "tests/parallel/mpi_for_tests.hpp"

namespace mpzero {

// Captures the output of rank 0 to stdout and stderr during the object's lifetime. The destructor prints the captured
// text to stdout, because it may contain reports of failed checks.
class CapturedOutput {
 public:
  CapturedOutput() {
    if (file_ == nullptr) throw std::runtime_error("tmpfile failed");
    flush();
    ::dup2(::fileno(file_), STDOUT_FILENO);
    ::dup2(::fileno(file_), STDERR_FILENO);
  }
  ~CapturedOutput() {
    flush();
    ::dup2(stdout_, STDOUT_FILENO);
    ::dup2(stderr_, STDERR_FILENO);
    ::close(stdout_);
    ::close(stderr_);
    std::fputs(of_this_rank().c_str(), stdout);
    std::fclose(file_);
  }
  CapturedOutput(const CapturedOutput&) = delete;
  CapturedOutput& operator=(const CapturedOutput&) = delete;

  // Returns the text captured so far, on all ranks. Collective.
  std::string text() const {
    flush();
    return broadcast(parallel::mpi(), of_this_rank());
  }

 private:
  static void flush() {
    std::fflush(stdout);
    std::fflush(stderr);
  }
  std::string of_this_rank() const {
    std::string text;
    char buffer[4096];
    off_t at = 0;
    for (ssize_t n = 0; (n = ::pread(::fileno(file_), buffer, sizeof buffer, at)) > 0; at += n) {
      text.append(buffer, static_cast<size_t>(n));
    }
    return text;
  }

  std::FILE* file_ = std::tmpfile();
  int stdout_ = ::dup(STDOUT_FILENO);
  int stderr_ = ::dup(STDERR_FILENO);
};

}  // namespace mpzero
