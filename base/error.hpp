#pragma once

#include <fmt/format.h>

#include <stdexcept>
#include <string>
#include <utility>

namespace mpzero {

// Exit code of a run that ends because of something its user can change: a file, a flag, a key.
inline constexpr int kUserErrorExitCode = 2;
// Exit code of a run that ends because something broke: a device, a peer, a disk.
inline constexpr int kFailureExitCode = 1;
// Exit code of a run that stopped because it was asked to, with its state saved: the same command goes on (EX_TEMPFAIL
// of sysexits.h).
inline constexpr int kStoppedExitCode = 75;
// Exit code of a run whose user interrupted it twice: it has saved nothing.
inline constexpr int kInterruptedExitCode = 130;

// Whether an error is known on the rank that met it alone, or every rank throws the same one (run_on_all_ranks).
enum class ErrorScope { kThisRank, kAllRanks };

class Error : public std::runtime_error {
 public:
  // `system_error`: the errno of the system call that failed; 0: none did.
  explicit Error(const std::string& message, ErrorScope scope = ErrorScope::kThisRank, int system_error = 0)
      : std::runtime_error(message), scope_(scope), system_error_(system_error) {}
  ErrorScope scope() const { return scope_; }
  int system_error() const { return system_error_; }
  virtual int exit_code() const = 0;

 private:
  ErrorScope scope_;
  int system_error_;
};

// A mistake the user can mend. The message is one sentence that says what is wrong, where (file, key, rank) and what to
// do. Ends the run on every rank with kUserErrorExitCode and no stack trace.
class UserError : public Error {
 public:
  using Error::Error;
  int exit_code() const override { return kUserErrorExitCode; }
};

// What was read is not what was written, or was never written to its end: another checksum, size or structure, a file
// that is missing. A failed system call is never damage, and neither is a format of a newer mpzero: what lies on the
// disk may be whole.
class Damaged final : public UserError {
 public:
  using UserError::UserError;
};

// A failed call of a library or the system. The message names the call, the file or peer it concerned and the reason.
// Ends the run on every rank with kFailureExitCode.
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
