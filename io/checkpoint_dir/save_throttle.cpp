#include "io/checkpoint_dir/save_throttle.hpp"

#include <algorithm>
#include <numeric>

#include "io/files/write_pace.hpp"

namespace mpzero::io {
namespace {

// Number of steps that define the usual time, and the minimum for a result.
constexpr size_t kUsualSteps = 32;
constexpr size_t kFewestSteps = 5;
// Steps during a save that are not measured; see the class.
constexpr int64_t kOpeningSteps = 2;
// A single step is too noisy.
constexpr size_t kStepsMeasured = 4;
// Weight of older measurements relative to the next one.
constexpr double kForget = 0.8;
// Maximum duration of a save, as a multiple of its minimum.
constexpr double kLongest = 8;
// Fraction of the time until the next save is due that this one may take.
constexpr double kShareOfTime = 0.75;

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  if (values.size() % 2 == 1) return *middle;
  return (*middle + *std::max_element(values.begin(), middle)) / 2;
}

}  // namespace

void SaveThrottle::step_alone(double seconds) {
  alone_.push_back(seconds);
  if (alone_.size() > kUsualSteps) alone_.pop_front();
}

double SaveThrottle::usual_seconds() const { return median({alone_.begin(), alone_.end()}); }

void SaveThrottle::begin(int64_t bytes, int64_t steps) {
  total_ = bytes;
  written_ = 0;
  steps_until_next_ = steps;
  steps_ = 0;
  fastest_ = 0;
  recent_.clear();
  recent_bytes_ = 0;
}

double SaveThrottle::step_during_save(double seconds, int64_t written) {
  const int64_t bytes = written - written_;
  written_ = written;
  ++steps_;
  fastest_ = std::max(fastest_, static_cast<double>(bytes) / seconds);
  if (alone_.size() < kFewestSteps) return WritePace::kUnlimited;
  if (steps_ > kOpeningSteps) {
    recent_.push_back(seconds);
    recent_bytes_ += bytes;
    if (recent_.size() == kStepsMeasured) measure();
  }
  return steps_ < kOpeningSteps ? WritePace::kUnlimited : rate();
}

void SaveThrottle::measure() {
  // No bytes were written: other writes, or the end of this save, say nothing about the cost of bytes.
  if (recent_bytes_ == 0) return recent_.clear();
  const double extra = median(recent_) - usual_seconds();
  extra_seconds_ = kForget * extra_seconds_ + extra * static_cast<double>(recent_.size());
  bytes_ = kForget * bytes_ + static_cast<double>(recent_bytes_);
  recent_.clear();
  recent_bytes_ = 0;
}

double SaveThrottle::rate() const {
  if (extra_seconds_ <= 0 || bytes_ <= 0) return WritePace::kUnlimited;
  double rate = kAllowedSlowdown * bytes_ / extra_seconds_;
  if (rate >= fastest_) return WritePace::kUnlimited;
  rate = std::max(rate, fastest_ / kLongest);
  if (steps_until_next_ > 0) {
    const double time_left =
        usual_seconds() * (kShareOfTime * static_cast<double>(steps_until_next_) - static_cast<double>(steps_));
    const auto left = static_cast<double>(total_ - written_);
    if (time_left <= 0 || left / time_left >= fastest_) return WritePace::kUnlimited;
    rate = std::max(rate, left / time_left);
  }
  return rate;
}

}  // namespace mpzero::io
