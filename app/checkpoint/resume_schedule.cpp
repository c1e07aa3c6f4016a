#include "app/checkpoint/resume_schedule.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>

#include "app/config/settings_table.hpp"
#include "app/flags/training_flags.hpp"
#include "app/schedule/lr_schedule_record.hpp"
#include "base/error.hpp"

namespace mpzero {
namespace {

using nlohmann::json;
using parallel::LrSchedule;

// Of the peak: with less than this almost nothing is learned. Schedules end at 0, at 1e-4 (DeepSpeed's default), or at
// a tenth.
constexpr double kAlmostNothing = 1e-2;

constexpr std::array<const char*, 7> kShape = {
    "scheduler", "warmup_type", "warmup_min_lr", "warmup_max_lr", "warmup_min_ratio", "cos_min_ratio", "lr"};
constexpr std::array<const char*, 3> kLength = {"total_num_steps", "warmup_num_steps", "num_decay_steps"};

template <size_t n>
bool differ(const json& known, const json& now, const std::array<const char*, n>& keys) {
  return std::any_of(keys.begin(), keys.end(), [&](const char* key) {
    return known.contains(key) && now.contains(key) && known[key] != now[key];
  });
}

// The schedule in force at the checkpoint, where its settings tell.
std::optional<LrSchedule> schedule_of(const json& known) {
  const bool has_changed = known.contains(kScheduleInForce);
  return schedule_of_record(has_changed ? known[kScheduleInForce] : known);
}

// The update after which the rates stay what they are.
LrSchedule held(const LrSchedule& schedule, int64_t step) {
  if (schedule.last_update()) return schedule.held_after(std::max(*schedule.last_update(), step));
  if (!schedule.total_num_steps()) return schedule;
  const int64_t begin = schedule.start() ? schedule.start()->step : 0;
  return schedule.held_after(std::max(begin + *schedule.total_num_steps(), step));
}

// A new warm-up from `lr` and a new decay in the steps that remain; without warm-up steps the decay begins at `lr`.
LrSchedule rewarmed(const RunConfig& config, int64_t step, double lr) {
  LrSchedule schedule = config.schedule;
  if (const auto total = schedule.total_num_steps()) {
    if (*total <= step) {
      throw_user_error(
          "--schedule_on_resume rewarm: the schedule's total_num_steps {} is not beyond the checkpoint's step {}; "
          "raise "
          "it, or leave it out so that --max_steps holds.",
          *total, step);
    }
    schedule = schedule.with_total_num_steps(*total - step);
  }
  if (schedule.warmup_num_steps() == 0) {
    if (lr <= kAlmostNothing * schedule.peak_lr()) {
      throw_user_error(
          "--schedule_on_resume rewarm: the checkpoint's learning rate is {:.4g}, from which no decay can begin, and "
          "the schedule has no warm-up; give --warmup_steps.",
          lr);
    }
    schedule = schedule.with_peak_lr(lr);
  }
  return schedule.started_after(step, lr);
}

// "learning rate 1e-04 at step 801, 1e-05 at step 1600".
std::string rates(const LrSchedule& schedule, int64_t step, int64_t max_steps) {
  const std::string next = fmt::format("learning rate {:.4g} at step {}", schedule.lr(step + 1), step + 1);
  if (max_steps <= step + 1) return next;
  return fmt::format("{}, {:.4g} at step {}", next, schedule.lr(max_steps), max_steps);
}

// Where the user has not chosen: the rate goes on where it is.
ResumedSchedule unchosen(const LrSchedule& before, const RunConfig& config, int64_t step, double lr) {
  const double extended = config.schedule.lr(step + 1);
  const double next = before.lr(step + 1);
  if (same_lr(extended, next)) return {};
  const LrSchedule kept = held(before, step);
  const bool warms_up = kept.lr(config.max_steps) <= kAlmostNothing * config.schedule.peak_lr() &&
                        config.schedule.total_num_steps().value_or(0) > step && config.schedule.warmup_num_steps() > 0;
  const LrSchedule chosen = warms_up ? rewarmed(config, step, lr) : kept;
  const std::string what = warms_up
                               ? "the schedule of the checkpoint would end at almost nothing, so that it warms up again"
                               : "the schedule of the checkpoint is kept, and after it its last rate";
  return {.schedule = chosen,
          .is_explained = true,
          .line = "",
          .warning =
              fmt::format("the length of the schedule has changed: {} ({}); --schedule_on_resume keep, rewarm or "
                          "extend chooses, where extend has {}.",
                          what, rates(chosen, step, config.max_steps), rates(config.schedule, step, config.max_steps))};
}

LrSchedule chosen_by_flag(const std::optional<LrSchedule>& before, const RunConfig& config, int64_t step,
                          std::optional<double> lr) {
  if (config.schedule_on_resume == ScheduleOnResume::kExtend) return config.schedule;
  if (!lr) {
    throw_user_error(
        "--schedule_on_resume {}: the checkpoint does not record its learning rate; give extend, or leave the flag "
        "out.",
        flag_named("schedule_on_resume").show(config));
  }
  if (config.schedule_on_resume == ScheduleOnResume::kRewarm) return rewarmed(config, step, *lr);
  return before ? held(*before, step) : LrSchedule(parallel::ConstantLr{*lr});
}

}  // namespace

bool same_lr(double a, double b) {
  constexpr double kRelative = 1e-9;
  return std::abs(a - b) <= kRelative * std::abs(b);
}

ResumedSchedule schedule_after(const io::StoredCheckpoint& checkpoint, const RunConfig& config, const json& known) {
  const int64_t step = checkpoint.progress().step;
  const json now = settings_record(config);
  const bool is_known = checkpoint.made_by_mpzero() && !checkpoint.progress().settings_json.empty();
  const std::optional<LrSchedule> before = is_known ? schedule_of(known) : std::nullopt;
  const bool is_asked = config.schedule_on_resume != ScheduleOnResume::kUnset;
  const json flag = now.value(kScheduleOnResume, json());
  const bool asks_anew = is_asked && (!is_known || known.value(kScheduleOnResume, json()) != flag);
  const bool other_shape = differ(known, now, kShape);
  const bool other_length = differ(known, now, kLength);
  if (before && !other_shape && !other_length && !asks_anew) {
    // As the settings say, unless an earlier start has changed it.
    return {.schedule = known.contains(kScheduleInForce) ? before : std::nullopt,
            .is_explained = known.contains(kScheduleInForce),
            .line = "",
            .warning = ""};
  }
  if (!is_asked) {
    if (!before || other_shape || std::isnan(checkpoint.progress().lr)) return {};
    return unchosen(*before, config, step, checkpoint.progress().lr);
  }
  std::optional<double> lr = checkpoint.next_lr();
  if (!std::isnan(checkpoint.progress().lr)) lr = checkpoint.progress().lr;
  const LrSchedule chosen = chosen_by_flag(before, config, step, lr);
  return {.schedule = chosen,
          .is_explained = true,
          .line = fmt::format("--schedule_on_resume {}: {}", flag_named("schedule_on_resume").show(config),
                              rates(chosen, step, config.max_steps)),
          .warning = ""};
}

}  // namespace mpzero
