#include "app/schedule/schedule_rates.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <vector>

namespace mpzero {
namespace {

// A schedule rises until its warm-up ends, and never later. Which update is the first at the peak depends on its kind.
int64_t highest_update(const parallel::LrSchedule& schedule, int64_t first, int64_t last) {
  const auto warmup = static_cast<double>(schedule.warmup_num_steps());
  int64_t highest = first;
  for (const int64_t update : {schedule.update_at(warmup, first), last}) {
    for (int64_t near = std::max(first, update - 1); near <= std::min(last, update + 3); ++near) {
      if (schedule.lr(near) > schedule.lr(highest)) highest = near;
    }
  }
  return highest;
}

}  // namespace

std::string describe_rates(const parallel::LrSchedule& schedule, int64_t first, int64_t last) {
  std::vector<int64_t> updates = {first};
  if (last > first) {
    updates.push_back(highest_update(schedule, first, last));
    updates.push_back(last);
  }
  updates.erase(std::unique(updates.begin(), updates.end()), updates.end());
  std::vector<std::string> rates;
  rates.reserve(updates.size());
  for (const int64_t update : updates) rates.push_back(fmt::format("{:.4g} at step {}", schedule.lr(update), update));
  return fmt::to_string(fmt::join(rates, ", "));
}

}  // namespace mpzero
