#include "io/files/write_pace.hpp"

#include <algorithm>
#include <cmath>

namespace mpzero::io {
namespace {

double seconds_between(std::chrono::steady_clock::time_point from, std::chrono::steady_clock::time_point to) {
  return std::chrono::duration<double>(to - from).count();
}

// Maximum wait in seconds. Prevents an overflow of the clock at rates near zero.
constexpr double kLongestWait = 60;

}  // namespace

WritePace::Stretch& WritePace::current() { return std::isinf(rate_) ? unlimited_ : limited_; }

void WritePace::count_time() {
  if (!begun_) return;
  const Clock::time_point now = Clock::now();
  current().seconds += seconds_between(counted_, now);
  counted_ = now;
}

void WritePace::refill() {
  const Clock::time_point now = Clock::now();
  // Unused time does not accumulate.
  allowance_ = std::isinf(rate_) ? 0 : std::min(0.0, allowance_ + rate_ * seconds_between(refilled_, now));
  refilled_ = now;
}

void WritePace::set_rate(double bytes_per_second) {
  {
    const std::scoped_lock lock(mutex_);
    count_time();
    refill();
    rate_ = bytes_per_second;
  }
  changed_.notify_all();
}

double WritePace::rate() const {
  const std::scoped_lock lock(mutex_);
  return rate_;
}

void WritePace::wait(int64_t bytes, const std::stop_token& stop) {
  std::unique_lock lock(mutex_);
  if (!begun_) {
    begun_ = true;
    counted_ = refilled_ = Clock::now();
  }
  for (refill(); allowance_ < 0 && !stop.stop_requested(); refill()) {
    const std::chrono::duration<double> pause(std::min(kLongestWait, -allowance_ / rate_));
    const double rate = rate_;
    changed_.wait_for(lock, stop, pause, [&] { return rate_ != rate; });
  }
  if (!std::isinf(rate_)) allowance_ -= static_cast<double>(bytes);
}

void WritePace::written(int64_t bytes, bool on_disk) {
  const std::scoped_lock lock(mutex_);
  count_time();
  cached_ = cached_ || !on_disk;
  current().bytes += bytes;
}

int64_t WritePace::bytes() const {
  const std::scoped_lock lock(mutex_);
  return unlimited_.bytes + limited_.bytes;
}

double WritePace::without_limit(double seconds) const {
  const std::scoped_lock lock(mutex_);
  if (cached_ || unlimited_.bytes == 0 || limited_.bytes == 0) return seconds;
  const double a_byte = unlimited_.seconds / static_cast<double>(unlimited_.bytes);
  return std::min(seconds, seconds - limited_.seconds + a_byte * static_cast<double>(limited_.bytes));
}

}  // namespace mpzero::io
