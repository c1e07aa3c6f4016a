#include "app/plan/command/plan_limit.hpp"

#include <algorithm>

#include "base/error.hpp"

namespace mpzero::plan {

LargestFit largest_fit(int64_t granularity, int64_t max_value, const std::function<Problem(int64_t)>& problem) {
  LargestFit fit;
  Problem last;
  const auto fits = [&](int64_t count) {
    Problem found;
    try {
      found = problem(count * granularity);
    } catch (const UserError& error) {
      if (count == 1) throw;
      found = [text = std::string(error.what())] { return text; };
    }
    if (found) last = found;
    return !found;
  };
  const int64_t max_count = std::max<int64_t>(1, max_value / granularity);
  // Invariant: `low` fits or is the smallest value, and `high` does not fit or exceeds the maximum.
  int64_t low = 1, high = 2;
  fit.fits = fits(low);
  if (fit.fits) {
    while (high <= max_count && fits(high)) {
      low = high;
      high *= 2;
    }
    high = std::min(high, max_count + 1);
    while (low + 1 < high) {
      const int64_t middle = low + (high - low) / 2;
      (fits(middle) ? low : high) = middle;
    }
  }
  fit.value = low * granularity;
  if (last) fit.problem = last();
  return fit;
}

}  // namespace mpzero::plan
