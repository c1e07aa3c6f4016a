#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <limits>
#include <mutex>
#include <stop_token>

namespace mpzero::io {

// How fast threads may write together. One thread sets the rate, at any time; those that write ask before each piece
// and tell what they have written. All calls from any thread.
class WritePace {
 public:
  static constexpr double kUnlimited = std::numeric_limits<double>::infinity();

  // Bytes a second, more than 0. Who waits goes on at the new rate.
  void set_rate(double bytes_per_second);

  // Before a piece: waits until the pieces before it have had their time, or until `stop`.
  void wait(int64_t bytes, const std::stop_token& stop);
  // After it. `on_disk`: rather than in the system's cache, from where it still has a way to go.
  void written(int64_t bytes, bool on_disk = true);

  // Written so far.
  int64_t bytes() const;
  // How long writing that took `seconds` in all would have taken without a limit, by how fast the disk was while there
  // was none. `seconds` where that is not known: all went at a limit, or through the system's cache.
  double without_limit(double seconds) const;

 private:
  using Clock = std::chrono::steady_clock;
  struct Stretch {
    double seconds = 0;
    int64_t bytes = 0;
  };

  // The mutex is locked.
  Stretch& current();
  void count_time();
  void refill();

  mutable std::mutex mutex_;
  std::condition_variable_any changed_;
  double rate_ = kUnlimited;
  double allowance_ = 0;  // bytes; below 0: what was written ahead of its time
  Clock::time_point refilled_{};
  bool begun_ = false;
  Clock::time_point counted_{};  // up to when time is in one of these
  Stretch unlimited_, limited_;
  bool cached_ = false;
};

}  // namespace mpzero::io
