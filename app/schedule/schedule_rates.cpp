#include "app/schedule/schedule_rates.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <vector>

namespace mpzero {
namespace {

// The learning rate increases only during warm-up. The first update at the peak is the last warm-up step or one of the
// following three: see lr_at().
int64_t highest_update(const parallel::LrSchedule& schedule, int64_t first, int64_t last) {
  const auto warmup = static_cast<double>(schedule.warmup_num_steps());
  const int64_t from = schedule.update_at(warmup, first), to = schedule.update_at(warmup + 3, first);
  int64_t highest = schedule.lr(last) > schedule.lr(first) ? last : first;
  for (int64_t update = from; update <= std::min(to, last); ++update) {
    if (schedule.lr(update) > schedule.lr(highest)) highest = update;
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
