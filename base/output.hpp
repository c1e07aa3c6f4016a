#pragma once

#include <fmt/format.h>

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>

#include "base/text/printable.hpp"

// All output to stdout and stderr is written by the functions in this file, which are thread-safe. A failed write does
// not throw or end the process: on a full disk, a closed terminal or a pipe without a reader, the text is lost and
// training continues.
namespace mpzero {

enum class Output : uint8_t { kStdout, kStderr };

void write_output(Output output, std::string_view text);

// Escapes text arguments with printable(), because they may contain untrusted file names or values from files. Returns
// other arguments unchanged.
template <typename T>
decltype(auto) printable_argument(const T& value) {
  if constexpr (std::is_convertible_v<const T&, std::string_view>) {
    return printable(value);
  } else {
    return (value);
  }
}
template <typename... Args>
std::string format_printable(fmt::string_view format, const Args&... args) {
  return fmt::vformat(format, fmt::make_format_args(args...));
}

// Print a formatted message to stdout (print_out) or stderr (print_err). Text arguments are escaped with printable(),
// so that they cannot begin a line or move the cursor.
template <typename... Args>
void print_out(fmt::format_string<Args...> format, Args&&... args) {
  write_output(Output::kStdout, format_printable(format, printable_argument(args)...));
}
template <typename... Args>
void print_err(fmt::format_string<Args...> format, Args&&... args) {
  write_output(Output::kStderr, format_printable(format, printable_argument(args)...));
}
// Prints "mpzero: warning: LINE" to stderr.
void print_warning(std::string_view line);

// Ignores SIGPIPE, so that writes to a pipe without a reader fail instead of ending the process.
void ignore_broken_pipes();

// Throws Failure if a write to stdout has failed. Must be called by commands that print their results to stdout.
void check_stdout();

// Progress of a long task on stderr: a bar on a terminal, otherwise a line per 10% (at most one line every ten
// seconds). Other output appears above the visible bar. Prints nothing if `enabled` is false (ranks other than 0).
//
// If the launcher forwards stdout and stderr to a terminal in one stream, MPZERO_TERMINAL contains the number of
// columns, and stderr is treated as a terminal.
class ProgressBar {
 public:
  ProgressBar(std::string title, int64_t total, bool enabled = true);
  ~ProgressBar();
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  // Sets the progress to `done` of `total`. Prints `note` after the bar (e.g. "loss 2.31").
  void update(int64_t done, const std::string& note = "");
  // Erases the bar until the next update().
  void clear();

 private:
  using Clock = std::chrono::steady_clock;
  void draw(int64_t done, const std::string& note);
  double seconds_since_start() const;
  double seconds_left(int64_t done) const;

  std::string title_;
  int64_t total_;
  bool enabled_;
  bool terminal_;
  bool visible_ = false;
  int64_t started_at_ = -1;  // `done` in the first update(); not 0 if the task was resumed
  Clock::time_point start_;
  Clock::time_point last_draw_;
  int64_t last_tenth_ = -1;
};

}  // namespace mpzero
