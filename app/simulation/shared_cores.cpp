#include "app/simulation/shared_cores.hpp"

#include <algorithm>

namespace mpzero::plan {

double SharedCores::work(double now, double seconds) {
  while (!left_.empty() && seconds > 0) {
    const double both = std::min(seconds, left_.front());
    now += both / options_.share;
    seconds -= both;
    left_.front() -= both;
    if (left_.front() > 0) break;
    left_.pop_front();
    ++ended_;
  }
  return now + seconds;
}

SharedCores::Move SharedCores::move(double now, double seconds) {
  const int64_t number = ended_ + static_cast<int64_t>(left_.size());
  left_.push_back(seconds);
  return {.number = number, .now = options_.moves_beside ? now : wait(now, number)};
}

double SharedCores::wait(double now, int64_t number) {
  for (; ended_ <= number; ++ended_) {
    now += left_.front();
    left_.pop_front();
  }
  return now;
}

}  // namespace mpzero::plan
