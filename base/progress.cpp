#include "base/progress.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/output.hpp"

namespace mpzero {
namespace {

std::string as_duration(double seconds) {
  const auto whole = static_cast<int64_t>(seconds);
  if (whole >= 3600) return fmt::format("{}:{:02}:{:02}", whole / 3600, whole / 60 % 60, whole % 60);
  return fmt::format("{}:{:02}", whole / 60, whole % 60);
}

}  // namespace

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
  print_err("{}: {} of {} ({}%){}{}\n", title_, done, total_, done * 100 / total_, note.empty() ? "" : ", ", note);
}

void ProgressBar::draw(int64_t done, const std::string& note) {
  const double fraction = std::clamp(static_cast<double>(done) / static_cast<double>(total_), 0.0, 1.0);
  const double elapsed = std::chrono::duration<double>(Clock::now() - start_).count();
  const int64_t progressed = done - started_at_;
  const double left =
      progressed > 0 ? elapsed / static_cast<double>(progressed) * static_cast<double>(total_ - done) : 0;
  const std::string head = fmt::format("{} {:3.0f}% ", title_, fraction * 100);
  const std::string tail = fmt::format(" {}/{} [{}<{}]{}{}", done, total_, as_duration(elapsed), as_duration(left),
                                       note.empty() ? "" : " ", note);
  const int width = std::max(5, terminal_columns() - 3 - static_cast<int>(head.size() + tail.size()));
  const int filled = static_cast<int>(fraction * width);
  std::string bar;
  for (int i = 0; i < width; ++i) bar += i < filled ? "█" : "░";
  show_status_line(head + bar + tail);
  visible_ = true;
}

}  // namespace mpzero
