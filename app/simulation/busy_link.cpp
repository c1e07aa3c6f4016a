#include "app/simulation/busy_link.hpp"

#include <utility>
#include <vector>

namespace mpzero::plan {

double BusyLink::use(double ready, double seconds) {
  double now = ready, left = seconds;
  std::vector<std::pair<double, double>> taken;
  auto next = busy_.upper_bound(now);
  if (next != busy_.begin() && std::prev(next)->second > now) --next;
  while (left > 0) {
    if (next != busy_.end() && next->first <= now) {
      now = (next++)->second;
      continue;
    }
    const bool fits = next == busy_.end() || now + left <= next->first;
    const double end = fits ? now + left : next->first;
    taken.emplace_back(now, end);
    left = fits ? 0 : left - (end - now);
    now = end;
  }
  busy_.insert(taken.begin(), taken.end());
  return now;
}

}  // namespace mpzero::plan
