#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace mpzero {

// Shows the progress of a long task: a bar on a terminal (see base/output.hpp), otherwise lines (one per tenth, at most
// one every ten seconds). Writes to stderr; silent when `enabled` is false (ranks other than 0).
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
