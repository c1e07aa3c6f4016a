#include "app/simulation/shared_memory.hpp"

#include <algorithm>
#include <limits>

namespace mpzero::plan {

void SharedMemory::take(double begin, double end, double seconds) {
  if (end > begin && seconds > 0) taken_.push_back({begin, end, std::min(1.0, seconds / (end - begin))});
}

double SharedMemory::work(double begin, double seconds) const {
  double now = begin, left = seconds;
  while (left > 0) {
    double rest = 1, until = std::numeric_limits<double>::infinity();
    for (const Taken& one : taken_) {
      if (one.begin > now) {
        until = std::min(until, one.begin);
      } else if (one.end > now) {
        until = std::min(until, one.end);
        rest -= one.share;
      }
    }
    rest = std::max(0.0, rest);
    if (rest * (until - now) >= left) return now + left / rest;
    left -= rest * (until - now);
    now = until;
  }
  return now;
}

void SharedMemory::forget_before(double now) {
  while (!taken_.empty() && taken_.front().end <= now) taken_.pop_front();
}

}  // namespace mpzero::plan
