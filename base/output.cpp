#include "base/output.hpp"

#include <poll.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <mutex>
#include <string>
#include <system_error>
#include <utility>

#include "base/error.hpp"

namespace mpzero {
namespace {

constexpr int kDefaultColumns = 80;
constexpr const char* kColumns = "MPZERO_TERMINAL";
constexpr std::string_view kErase = "\r\033[K";
// Timeout for writes to a terminal that another process made nonblocking. On timeout, the text is dropped.
constexpr int kPatienceMilliseconds = 1000;

std::mutex writing;
bool status_line_visible = false;
std::atomic<int> last_stdout_error = 0;

bool is_forwarded_to_terminal() { return ::isatty(STDERR_FILENO) != 1 && std::getenv(kColumns) != nullptr; }

// Returns 0 or errno.
int write_all(int descriptor, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(descriptor, text.data(), text.size());
    if (written >= 0) {
      text.remove_prefix(static_cast<size_t>(written));
      continue;
    }
    if (errno == EINTR) continue;
    if (errno != EAGAIN) return errno;
    pollfd ready{.fd = descriptor, .events = POLLOUT, .revents = 0};
    if (::poll(&ready, 1, kPatienceMilliseconds) == 0) return EAGAIN;
  }
  return 0;
}

void erase_locked() {
  if (!std::exchange(status_line_visible, false)) return;
  write_all(STDERR_FILENO, kErase);
}

bool has_terminal() { return ::isatty(STDERR_FILENO) == 1 || is_forwarded_to_terminal(); }

int terminal_columns() {
  winsize size{};
  if (::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
  const char* columns = std::getenv(kColumns);
  const int given = columns == nullptr ? 0 : std::atoi(columns);
  constexpr int kMostColumns = 1000;
  return given > 0 ? std::min(given, kMostColumns) : kDefaultColumns;
}

// Disables line wrapping, so that the status line stays a single line if the terminal becomes narrower.
void show_status_line(std::string_view line) {
  constexpr std::string_view kNoWrap = "\r\033[?7l";
  constexpr std::string_view kWrap = "\033[K\033[?7h";
  const std::scoped_lock lock(writing);
  status_line_visible = true;
  write_all(STDERR_FILENO, std::string(kNoWrap).append(line).append(kWrap));
}

void erase_status_line() {
  const std::scoped_lock lock(writing);
  erase_locked();
}

void keep_status_line() {
  const std::scoped_lock lock(writing);
  if (std::exchange(status_line_visible, false)) write_all(STDERR_FILENO, "\n");
}

// Returns the first `columns` characters of UTF-8 text.
std::string cut_columns(const std::string& text, size_t columns) {
  size_t end = 0;
  for (size_t shown = 0; end < text.size(); ++end) {
    const bool continues = (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80;
    if (!continues && shown++ == columns) break;
  }
  return text.substr(0, end);
}

std::string as_duration(double seconds) {
  const auto whole = static_cast<int64_t>(seconds);
  if (whole >= 3600) return fmt::format("{}:{:02}:{:02}", whole / 3600, whole / 60 % 60, whole % 60);
  return fmt::format("{}:{:02}", whole / 60, whole % 60);
}

}  // namespace

void write_output(Output output, std::string_view text) {
  const std::scoped_lock lock(writing);
  const int descriptor = output == Output::kStdout ? STDOUT_FILENO : STDERR_FILENO;
  int error = 0;
  if (is_forwarded_to_terminal()) {
    // The status line may belong to another rank. Uses a single write because the launcher merges the output of all
    // ranks.
    status_line_visible = false;
    error = write_all(descriptor, std::string(kErase).append(text));
  } else {
    erase_locked();
    error = write_all(descriptor, text);
  }
  if (error != 0 && output == Output::kStdout) last_stdout_error = error;
}

void print_warning(std::string_view line) { print_err("mpzero: warning: {}\n", line); }

void ignore_broken_pipes() { std::signal(SIGPIPE, SIG_IGN); }

void check_stdout() {
  if (const int error = last_stdout_error; error != 0) {
    throw_failure("cannot write to stdout: {}", std::generic_category().message(error));
  }
}

ProgressBar::ProgressBar(std::string title, int64_t total, bool enabled)
    : title_(std::move(title)),
      total_(std::max<int64_t>(total, 1)),
      enabled_(enabled),
      terminal_(has_terminal()),
      start_(Clock::now()) {}

ProgressBar::~ProgressBar() {
  if (visible_) keep_status_line();
}

void ProgressBar::clear() {
  if (std::exchange(visible_, false)) erase_status_line();
}

void ProgressBar::update(int64_t done, const std::string& note) {
  if (!enabled_) return;
  const Clock::time_point now = Clock::now();
  if (started_at_ < 0) started_at_ = done;
  if (terminal_) {
    if (done < total_ && now - last_draw_ < std::chrono::milliseconds(100)) return;
    last_draw_ = now;
    draw(done, note);
    return;
  }
  const int64_t tenth = done * 10 / total_;
  const bool finished = done >= total_;
  if (tenth == last_tenth_ || (!finished && now - last_draw_ < std::chrono::seconds(10))) return;
  last_tenth_ = tenth;
  last_draw_ = now;
  std::string text = fmt::format("{}: {} of {} ({}%)", title_, done, total_, done * 100 / total_);
  if (done > started_at_) {
    text += fmt::format(", {} elapsed", as_duration(seconds_since_start()));
    if (!finished) text += fmt::format(", {} left", as_duration(seconds_left(done)));
  }
  print_err("{}{}{}\n", text, note.empty() ? "" : ", ", note);
}

double ProgressBar::seconds_since_start() const { return std::chrono::duration<double>(Clock::now() - start_).count(); }

double ProgressBar::seconds_left(int64_t done) const {
  const int64_t progressed = done - started_at_;
  if (progressed <= 0) return 0;
  return seconds_since_start() / static_cast<double>(progressed) * static_cast<double>(total_ - done);
}

void ProgressBar::draw(int64_t done, const std::string& note) {
  const double fraction = std::clamp(static_cast<double>(done) / static_cast<double>(total_), 0.0, 1.0);
  const std::string head = fmt::format("{} {:3.0f}% ", title_, fraction * 100);
  const std::string tail = fmt::format(" {}/{} [{}<{}]{}{}", done, total_, as_duration(seconds_since_start()),
                                       as_duration(seconds_left(done)), note.empty() ? "" : " ", printable(note));
  const int columns = terminal_columns();
  const int width = std::max(5, columns - 3 - static_cast<int>(head.size() + tail.size()));
  const int filled = static_cast<int>(fraction * width);
  std::string bar;
  for (int i = 0; i < width; ++i) bar += i < filled ? "█" : "░";
  // Truncates long lines, and reserves columns for characters that the terminal echoes (^C).
  const auto room = static_cast<size_t>(std::max(0, columns - 3 - width - static_cast<int>(head.size())));
  show_status_line(head + bar + cut_columns(tail, room));
  visible_ = true;
}

}  // namespace mpzero
