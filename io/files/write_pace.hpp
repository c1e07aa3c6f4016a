#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <limits>
#include <mutex>
#include <stop_token>

namespace mpzero::io {

// Limits the combined write rate of several threads. Writing threads call wait() before and written() after each piece.
// The rate can be changed at any time. Thread-safe.
class WritePace {
 public:
  static constexpr double kUnlimited = std::numeric_limits<double>::infinity();

  // Sets the rate in bytes per second, which must be positive. Waiting threads continue at the new rate.
  void set_rate(double bytes_per_second);
  double rate() const;

  // Blocks until the rate permits the next write, or until `stop` is requested. Must be called before a piece is
  // written.
  void wait(int64_t bytes, const std::stop_token& stop);
  // Records a write. `on_disk` is false if the bytes are only in the page cache. Must be called after a piece is
  // written.
  void written(int64_t bytes, bool on_disk = true);

  // Returns the number of bytes written so far.
  int64_t bytes() const;
  // Estimates how long writes that took `seconds` would have taken without rate limiting. Returns `seconds` if all
  // writes were rate-limited or any write went to the page cache, because the disk speed is then unknown.
  double without_limit(double seconds) const;

 private:
  using Clock = std::chrono::steady_clock;
  struct Stretch {
    double seconds = 0;
    int64_t bytes = 0;
  };

  // The caller must hold the mutex.
  Stretch& current();
  void count_time();
  void refill();

  mutable std::mutex mutex_;
  std::condition_variable_any changed_;
  double rate_ = kUnlimited;
  double allowance_ = 0;  // bytes; negative after writes ahead of schedule
  Clock::time_point refilled_{};
  bool begun_ = false;
  Clock::time_point counted_{};  // end of the time that is included in the current Stretch
  Stretch unlimited_, limited_;
  bool cached_ = false;
};

}  // namespace mpzero::io
