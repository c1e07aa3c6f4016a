#include "model/tuning.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

namespace mpzero::model {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// Returns the number of runs of `run_seconds` that fit into `seconds`, clamped to [least, most].
size_t runs_that_fit(double seconds, double run_seconds, size_t least, size_t most) {
  const double fit = run_seconds > 0 ? seconds / run_seconds : static_cast<double>(most);
  return std::clamp(fit < static_cast<double>(most) ? static_cast<size_t>(fit) : most, std::min(least, most), most);
}

}  // namespace

TuningResult find_fastest(size_t proposed, const TimeRuns& time, const TuningBounds& bounds) {
  const size_t yardstick = proposed;
  TuningResult result{yardstick, std::vector<double>(proposed + 1, kNever), 0};
  const auto quick_round = [&](const std::vector<size_t>& candidates) {
    const std::vector<double> seconds = time(candidates);
    for (size_t i = 0; i < candidates.size(); ++i) result.seconds[candidates[i]] = seconds[i];
    result.tried += candidates.size();
  };
  quick_round(proposed > 0 ? std::vector<size_t>{0, yardstick} : std::vector<size_t>{yardstick});
  const double about = std::min(result.seconds.front(), result.seconds.back());

  // In the first round, each candidate runs twice, once untimed.
  const size_t quick = runs_that_fit(bounds.round_seconds, 2 * about, bounds.least_candidates, proposed);
  if (quick > 1) {
    std::vector<size_t> candidates(quick - 1);
    std::iota(candidates.begin(), candidates.end(), size_t{1});
    quick_round(candidates);
  }

  std::vector<size_t> finalists;
  for (size_t candidate = 0; candidate < yardstick; ++candidate) {
    if (result.seconds[candidate] < kNever) finalists.push_back(candidate);
  }
  std::stable_sort(finalists.begin(), finalists.end(),
                   [&](size_t a, size_t b) { return result.seconds[a] < result.seconds[b]; });
  if (finalists.size() > bounds.finalists) finalists.resize(bounds.finalists);
  if (finalists.empty()) return result;
  finalists.push_back(yardstick);
  std::sort(finalists.begin(), finalists.end());

  const size_t repeats = runs_that_fit(bounds.round_seconds, about * static_cast<double>(finalists.size()),
                                       bounds.least_repeats, bounds.repeats);
  std::vector<std::vector<double>> times(finalists.size());
  for (size_t repeat = 0; repeat < repeats; ++repeat) {
    const std::vector<double> seconds = time(finalists);
    for (size_t i = 0; i < finalists.size(); ++i) times[i].push_back(seconds[i]);
  }
  double shortest = kNever;
  for (size_t i = 0; i < finalists.size(); ++i) {
    result.seconds[finalists[i]] = median(times[i]);
    shortest = std::min(shortest, result.seconds[finalists[i]]);
  }
  result.fastest = *std::find_if(finalists.begin(), finalists.end(), [&](size_t candidate) {
    return result.seconds[candidate] <= shortest * (1 + bounds.tie);
  });
  return result;
}

}  // namespace mpzero::model
