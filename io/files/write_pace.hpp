#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <limits>
#include <mutex>
#include <stop_token>

namespace mpzero::io {

// Limits the combined write rate of several threads. One thread sets the rate at any time. The writing threads ask
// before each piece and report what they have written. Thread-safe.
class WritePace {
 public:
  static constexpr double kUnlimited = std::numeric_limits<double>::infinity();

  // Bytes per second, greater than 0. Waiting threads continue at the new rate.
  void set_rate(double bytes_per_second);
  double rate() const;

  // Call before writing a piece: waits until the time of the previous pieces has passed, or until `stop`.
  void wait(int64_t bytes, const std::stop_token& stop);
  // Call after writing it. `on_disk`: false if the bytes are only in the page cache so far.
  void written(int64_t bytes, bool on_disk = true);

  // Bytes written so far.
  int64_t bytes() const;
  // Estimates the time without throttling of writes that took `seconds` in total, from the disk's speed while nothing
  // was throttled. Returns `seconds` if that speed is unknown: every write was throttled, or went to the page cache.
  double without_limit(double seconds) const;

 private:
  using Clock = std::chrono::steady_clock;
  struct Stretch {
    double seconds = 0;
    int64_t bytes = 0;
  };

  // Requires the mutex to be locked.
  Stretch& current();
  void count_time();
  void refill();

  mutable std::mutex mutex_;
  std::condition_variable_any changed_;
  double rate_ = kUnlimited;
  double allowance_ = 0;  // bytes; negative: written ahead of schedule
  Clock::time_point refilled_{};
  bool begun_ = false;
  Clock::time_point counted_{};  // time is accounted up to here
  Stretch unlimited_, limited_;
  bool cached_ = false;
};

}  // namespace mpzero::io
