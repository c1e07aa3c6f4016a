#include "app/health/stragglers.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace mpzero {
namespace {

constexpr size_t kWindow = 20;  // steps
// A rank is slow if its time exceeds the median of the other ranks by kLateFactor and by kLateSeconds.
constexpr double kLateFactor = 1.10;
constexpr double kLateSeconds = 0.001;
constexpr int64_t kLateSteps = 16;  // minimum number of slow steps in a window
// The first steps are slower because they select kernels and allocate memory.
constexpr int64_t kWarmUpSteps = 2;

bool power_of_two(int64_t number) { return (number & (number - 1)) == 0; }

// Returns the lower median of all values except one.
double median_of_others(std::span<const double> seconds, size_t without) {
  std::vector<double> others;
  for (size_t i = 0; i < seconds.size(); ++i) {
    if (i != without) others.push_back(seconds[i]);
  }
  const auto middle = others.begin() + static_cast<std::ptrdiff_t>((others.size() - 1) / 2);
  std::nth_element(others.begin(), middle, others.end());
  return *middle;
}

size_t slowest_of(std::span<const double> seconds) {
  return static_cast<size_t>(std::max_element(seconds.begin(), seconds.end()) - seconds.begin());
}

bool late(double seconds, double median) { return seconds > median * kLateFactor && seconds > median + kLateSeconds; }

double share_beyond(double seconds, double median) { return seconds > 0 ? (seconds - median) / seconds : 0; }

}  // namespace

std::string describe(const Straggler& straggler, const std::string& host, const std::string& gpu) {
  return fmt::format(
      "straggler: rank {} on {}: compute time {:.1f} ms per step (median of the other ranks: {:.1f} ms), more "
      "than 10% slower in {} of the last {} steps{}; check for other programs on this host.",
      straggler.rank, host, straggler.seconds * 1e3, straggler.median_seconds * 1e3, straggler.steps, straggler.of,
      gpu.empty() ? "" : " (" + gpu + ")");
}

std::optional<SlowestRank> Stragglers::add(std::span<const double> seconds) {
  const bool measured = std::all_of(seconds.begin(), seconds.end(), [](double one) { return one > 0; });
  if (seconds.size() < 2 || !measured) return std::nullopt;
  const size_t slowest = slowest_of(seconds);
  const SlowestRank result{.rank = static_cast<int>(slowest),
                           .share = share_beyond(seconds[slowest], median_of_others(seconds, slowest))};
  if (++seen_ <= kWarmUpSteps) return result;
  window_.push_back({{seconds.begin(), seconds.end()}});
  if (window_.size() < kWindow) return result;
  const std::optional<Straggler> straggler = judge();
  window_.clear();
  windows_late_ = straggler && straggler->rank == last_rank_ ? windows_late_ + 1 : 1;
  last_rank_ = straggler ? straggler->rank : -1;
  if (straggler && power_of_two(windows_late_)) found_ = straggler;
  return result;
}

std::optional<Straggler> Stragglers::judge() const {
  std::vector<double> sums(window_.front().seconds.size(), 0.0);
  for (const Step& step : window_) {
    for (size_t i = 0; i < sums.size(); ++i) sums[i] += step.seconds[i];
  }
  const size_t slowest = slowest_of(sums);
  Straggler straggler{.rank = static_cast<int>(slowest), .of = static_cast<int64_t>(window_.size())};
  for (const Step& step : window_) {
    if (late(step.seconds[slowest], median_of_others(step.seconds, slowest))) ++straggler.steps;
  }
  const auto steps = static_cast<double>(window_.size());
  straggler.seconds = sums[slowest] / steps;
  straggler.median_seconds = median_of_others(sums, slowest) / steps;
  straggler.share = share_beyond(straggler.seconds, straggler.median_seconds);
  if (straggler.steps < kLateSteps || !late(straggler.seconds, straggler.median_seconds)) return std::nullopt;
  return straggler;
}

std::optional<Straggler> Stragglers::take_straggler() { return std::exchange(found_, std::nullopt); }

}  // namespace mpzero
