#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <string_view>
#include <utility>

// The only writer of stdout and stderr. No call throws or ends the process: on a full disk, a closed terminal or a pipe
// without a reader, the text is lost and training continues. Thread-safe.
namespace mpzero {

enum class Output : uint8_t { kStdout, kStderr };

void write_output(Output output, std::string_view text);

template <typename... Args>
void print_out(fmt::format_string<Args...> format, Args&&... args) {
  write_output(Output::kStdout, fmt::format(format, std::forward<Args>(args)...));
}
template <typename... Args>
void print_err(fmt::format_string<Args...> format, Args&&... args) {
  write_output(Output::kStderr, fmt::format(format, std::forward<Args>(args)...));
}
// "mpzero: warning: LINE" on stderr.
void print_warning(std::string_view line);

// Makes writes to a pipe without a reader fail instead of ending the process.
void ignore_broken_pipes();

// For commands whose product is their output: throws Failure if a write to stdout has failed.
void check_stdout();

// Whether a person watches stderr: it is a terminal, or MPZERO_TERMINAL gives the columns of the terminal to which the
// launcher forwards stdout and stderr, in one stream.
bool has_terminal();
int terminal_columns();

// Shows `line` below the text on the terminal, in place of the previous one. Text that is written later appears above
// it: the line is erased, and its owner shows it again. A line that is too long is cut at the edge of the terminal.
void show_status_line(std::string_view line);
void erase_status_line();
// Keeps the line as text.
void keep_status_line();

}  // namespace mpzero
