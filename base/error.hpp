#pragma once

#include <fmt/format.h>

#include <stdexcept>
#include <string>
#include <utility>

namespace mpzero {

// Exit code after a user error: an invalid file, flag or key.
inline constexpr int kUserErrorExitCode = 2;
// Exit code after a failure of a device, a peer or a disk.
inline constexpr int kFailureExitCode = 1;
// Exit code after a requested stop that saved the training state. The same command resumes the run (EX_TEMPFAIL in
// sysexits.h).
inline constexpr int kStoppedExitCode = 75;
// Exit code after a second interrupt by the user, without saving the training state.
inline constexpr int kInterruptedExitCode = 130;

// Ranks that throw the error: only this rank, or all ranks with the same message (see run_on_all_ranks).
enum class ErrorScope { kThisRank, kAllRanks };

class Error : public std::runtime_error {
 public:
  // `system_error`: the errno of the failed system call; 0 if no system call failed.
  explicit Error(const std::string& message, ErrorScope scope = ErrorScope::kThisRank, int system_error = 0)
      : std::runtime_error(message), scope_(scope), system_error_(system_error) {}
  ErrorScope scope() const { return scope_; }
  int system_error() const { return system_error_; }
  virtual int exit_code() const = 0;

 private:
  ErrorScope scope_;
  int system_error_;
};

// A user error. The message states the problem, the location (file, key, rank) and the remedy. The error ends the run
// on every rank with kUserErrorExitCode and without a stack trace.
class UserError : public Error {
 public:
  using Error::Error;
  int exit_code() const override { return kUserErrorExitCode; }
};

// Damaged data: a wrong checksum, size or structure, an incomplete write, or a missing file. Damaged is not thrown for
// failed system calls or for formats of a newer mpzero version, because the data on disk may be intact.
class Damaged final : public UserError {
 public:
  using UserError::UserError;
};

// A failed library or system call. The message contains the call, the file or peer, and the reason. The error ends the
// run on every rank with kFailureExitCode.
class Failure final : public Error {
 public:
  using Error::Error;
  int exit_code() const override { return kFailureExitCode; }
};

template <typename... Args>
[[noreturn]] void throw_user_error(fmt::format_string<Args...> format, Args&&... args) {
  throw UserError(fmt::format(format, std::forward<Args>(args)...));
}

template <typename... Args>
[[noreturn]] void throw_failure(fmt::format_string<Args...> format, Args&&... args) {
  throw Failure(fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace mpzero
