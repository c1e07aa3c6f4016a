#pragma once

#include <fmt/format.h>

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>

#include "base/text/printable.hpp"

// The only writer of stdout and stderr. No call throws or ends the process: on a full disk, a closed terminal or a pipe
// without a reader, the text is lost and training continues. Thread-safe.
namespace mpzero {

enum class Output : uint8_t { kStdout, kStderr };

void write_output(Output output, std::string_view text);

// Text arguments are untrusted: they may contain file names or values from files.
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

// Text arguments pass through printable(), so none can begin a line or move the cursor.
template <typename... Args>
void print_out(fmt::format_string<Args...> format, Args&&... args) {
  write_output(Output::kStdout, format_printable(format, printable_argument(args)...));
}
template <typename... Args>
void print_err(fmt::format_string<Args...> format, Args&&... args) {
  write_output(Output::kStderr, format_printable(format, printable_argument(args)...));
}
// "mpzero: warning: LINE" on stderr.
void print_warning(std::string_view line);

// Makes writes to a pipe without a reader fail instead of ending the process.
void ignore_broken_pipes();

// Throws Failure if a write to stdout has failed. For commands whose result is their output.
void check_stdout();

// Shows the progress of a long task: a bar on a terminal, otherwise lines (one per tenth, at most one every ten
// seconds). Text that is written while the bar is visible appears above it. Writes to stderr; silent when `enabled` is
// false (ranks other than 0).
//
// stderr also counts as a terminal if MPZERO_TERMINAL is set: the columns of the terminal to which the launcher
// forwards stdout and stderr in one stream.
class ProgressBar {
 public:
  ProgressBar(std::string title, int64_t total, bool enabled = true);
  ~ProgressBar();
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  // Moves to `done` of `total`; `note` is printed after the bar (e.g. "loss 2.31").
  void update(int64_t done, const std::string& note = "");
  // Erases the bar; the next update draws it again.
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
  int64_t started_at_ = -1;  // `done` of the first update: a resumed task does not start at 0
  Clock::time_point start_;
  Clock::time_point last_draw_;
  int64_t last_tenth_ = -1;
};

}  // namespace mpzero
