#include "app/checkpoint/resume_schedule.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>

#include "app/config/settings_table.hpp"
#include "app/flags/training_flags.hpp"
#include "app/schedule/lr_schedule_record.hpp"
#include "app/schedule/schedule_rates.hpp"
#include "base/error.hpp"

namespace mpzero {
namespace {

using nlohmann::json;
using parallel::LrSchedule;

// Fraction of the peak below which a learning rate is considered to be near 0. Schedules typically end at 0, 1e-4
// (DeepSpeed's default) or 0.1 of the peak.
constexpr double kAlmostNothing = 1e-2;

constexpr std::array<const char*, 8> kShape = {
    "scheduler",     "warmup_type", "warmup_min_lr", "warmup_max_lr", "warmup_min_ratio",
    "cos_min_ratio", "lr",          "lr_gamma"};
constexpr std::array<const char*, 3> kLength = {"total_num_steps", "warmup_num_steps", "num_decay_steps"};

// Returns the changed keys among those that determine the shape of the schedule.
std::vector<std::string> changed_shape(const json& known, const json& now) {
  std::vector<std::string> changed;
  for (const char* key : kShape) {
    if (known.contains(key) && now.contains(key) && known[key] != now[key]) changed.emplace_back(key);
  }
  return changed;
}

// Returns a warning that --schedule_on_resume keep ignores the changed keys, e.g. "lr 0.002 (checkpoint: 0.001)".
std::string ignored_by_keep(const std::vector<std::string>& changed, const json& known, const json& now) {
  std::vector<std::string> values;
  for (const std::string& key : changed) {
    values.push_back(fmt::format("{} {} (checkpoint: {})", key, now[key].dump(), known[key].dump()));
  }
  return fmt::format(
      "--schedule_on_resume keep continues the checkpoint's schedule, so {} {} no effect; to use the new schedule, "
      "pass --schedule_on_resume rewarm or extend.",
      fmt::join(values, ", "), values.size() == 1 ? "has" : "have");
}

// Returns the effective schedule at the checkpoint, if recorded.
std::optional<LrSchedule> schedule_of(const json& known) {
  const bool has_changed = known.contains(kScheduleInForce);
  return schedule_of_record(has_changed ? known[kScheduleInForce] : known);
}

// Extends the schedule beyond its end with its last learning rate.
LrSchedule held(const LrSchedule& schedule, int64_t step) {
  if (schedule.held_from() || !schedule.total_num_steps()) return schedule;
  return schedule.held_from(std::max(static_cast<double>(*schedule.total_num_steps()), schedule.time(step)));
}

// Returns the number of steps of the configured schedule after `step`; std::nullopt if the schedule has no end.
std::optional<int64_t> remaining(const RunConfig& config, int64_t step) {
  if (!config.schedule.total_num_steps()) return std::nullopt;
  return (config.schedule_ends_at_max_steps ? config.max_steps : *config.schedule.total_num_steps()) - step;
}

// Fits the configured schedule to the remaining steps: from `lr`, it warms up (or decays, if it has no warm-up) and
// ends at its final learning rate.
LrSchedule rewarmed(const RunConfig& config, int64_t step, double lr) {
  LrSchedule schedule = config.schedule;
  if (schedule.warmup_num_steps() == 0) {
    if (lr < kAlmostNothing * schedule.peak_lr()) {
      throw_user_error(
          "the schedule has no warm-up and cannot decay from the checkpoint's learning rate {:.4g}; pass "
          "--warmup_steps, or --schedule_on_resume keep or extend.",
          lr);
    }
    schedule = schedule.with_peak_lr(lr);
  }
  schedule = schedule.started_after(step, lr);
  const std::optional<int64_t> steps = remaining(config, step);
  if (!steps) return schedule;
  const int64_t total = *schedule.total_num_steps();
  if (*steps < 1) {
    throw_user_error(
        "--schedule_on_resume rewarm: total_num_steps {} does not exceed the checkpoint's step {}; raise "
        "total_num_steps, or omit it to use --max_steps.",
        total, step);
  }
  if (*steps == 1) return schedule;
  const double rate = static_cast<double>(total - 1) / static_cast<double>(*steps - 1);
  return schedule.with_clock(LrSchedule::Clock{.step = step, .time = 1 - rate, .rate = rate});
}

// Returns true if more than half of the remaining steps have a learning rate near 0. Samples at most 10,000 steps.
bool trains_at_almost_nothing(const LrSchedule& schedule, const RunConfig& config, int64_t step) {
  const int64_t stride = (config.max_steps - step + 9'999) / 10'000;
  int64_t all = 0, few = 0;
  for (int64_t update = config.max_steps; update > step; update -= stride, ++all) {
    if (schedule.lr(update) < kAlmostNothing * config.schedule.peak_lr()) ++few;
  }
  return 2 * few > all;
}

// The default of --schedule_on_resume: the learning rate does not jump.
ResumedSchedule unchosen(const LrSchedule& before, const RunConfig& config, int64_t step, double lr) {
  // Record the configured schedule only if it has a clock, because its time then differs from the step.
  const ResumedSchedule as_extended{
      .schedule = config.schedule.clock() ? std::optional(config.schedule) : std::nullopt, .line = "", .warning = ""};
  if (same_lr(config.schedule.lr(step + 1), before.lr(step + 1))) return as_extended;
  const LrSchedule kept = held(before, step);
  // False if the run ends before the schedule.
  const bool is_held = kept.held_from() && kept.time(config.max_steps) > *kept.held_from();
  const bool warms_up = is_held && kept.lr(config.max_steps) < kAlmostNothing * before.peak_lr() &&
                        remaining(config, step).value_or(0) > 0;
  const LrSchedule chosen = warms_up ? rewarmed(config, step, lr) : kept;
  const auto rates = [&](const LrSchedule& schedule) { return describe_rates(schedule, step + 1, config.max_steps); };
  if (warms_up && trains_at_almost_nothing(chosen, config, step)) {
    throw_user_error(
        "the schedule has ended: most of the {} steps up to --max_steps {} would use less than 1% of the peak learning "
        "rate ({}); raise --max_steps, or pass --schedule_on_resume keep, rewarm or extend.",
        config.max_steps - step, config.max_steps, rates(chosen));
  }
  const char* again = chosen.warmup_num_steps() > 0 ? "the learning rate warms up again"
                                                    : "the learning rate decays again from its last value";
  if (!warms_up) {
    return {
        .schedule = chosen,
        .is_explained = true,
        .line = fmt::format("The schedule's length has changed: the run follows the checkpoint's schedule{}; to change "
                            "this, pass --schedule_on_resume rewarm or extend",
                            is_held            ? ", then keeps the last learning rate"
                            : kept.held_from() ? " and ends before that schedule does"
                                               : ""),
        .warning = ""};
  }
  return {.schedule = chosen,
          .is_explained = true,
          .line = "",
          .warning =
              fmt::format("the schedule's length has changed: the checkpoint's schedule ends near 0, so {} (learning "
                          "rate {}); to use a different schedule, pass --schedule_on_resume keep or extend (learning "
                          "rate with extend: {}).",
                          again, rates(chosen), rates(config.schedule))};
}

// Returns the ratio of tokens per step in this run to tokens per step in the checkpoint's run; 1 if unknown.
double growth_of_steps(const json& known, const RunConfig& config) {
  const auto number = [&](const char* key, int64_t otherwise) {
    const auto found = known.find(key);
    const int64_t value = found != known.end() && found->is_number_integer() ? found->get<int64_t>() : otherwise;
    return static_cast<double>(value < 1 ? otherwise : value);
  };
  const double before = number("train_batch_size", config.train_batch_size) * number("seq_length", config.seq_length);
  return static_cast<double>(config.train_batch_size) * static_cast<double>(config.seq_length) / before;
}

// Returns true if a length differs both in steps and, by at least one step of either run, in tokens. A warm-up or decay
// with the same number of steps is considered unchanged.
bool lengths_differ(const json& known, const json& now, double growth) {
  return std::any_of(kLength.begin(), kLength.end(), [&](const std::string& key) {
    if (!known.contains(key) || !now.contains(key)) return false;
    if (known[key] == now[key] && (growth == 1 || key != "total_num_steps")) return false;
    if (growth == 1 || !known[key].is_number() || !now[key].is_number()) return known[key] != now[key];
    return std::abs(now[key].get<double>() * growth - known[key].get<double>()) >= std::max(1.0, growth);
  });
}

LrSchedule chosen_by_flag(const std::optional<LrSchedule>& before, const RunConfig& config, int64_t step,
                          std::optional<double> lr) {
  if (config.schedule_on_resume == ScheduleOnResume::kExtend) return config.schedule;
  if (!lr) {
    throw_user_error(
        "--schedule_on_resume {}: the checkpoint does not record a learning rate; use extend, or omit the flag.",
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
  std::optional<LrSchedule> before = is_known ? schedule_of(known) : std::nullopt;
  const bool by_sequences = config.sequences && config.schedule_ends_at_max_steps;
  const double growth = by_sequences ? growth_of_steps(known, config) : 1;
  const bool is_paced = before && growth != 1;
  if (is_paced) before = before->paced_after(step, growth);
  const bool is_asked = config.schedule_on_resume != ScheduleOnResume::kUnset;
  const json flag = now.value(kScheduleOnResume, json());
  const bool asks_anew = is_asked && (!is_known || known.value(kScheduleOnResume, json()) != flag);
  const std::vector<std::string> shape = changed_shape(known, now);
  const bool other_length = lengths_differ(known, now, growth);
  if (before && shape.empty() && !other_length && !asks_anew) {
    // Use the configured schedule unless an earlier resume changed it.
    const bool is_other = is_paced || known.contains(kScheduleInForce);
    return {.schedule = is_other ? before : std::nullopt, .is_explained = is_other, .line = "", .warning = ""};
  }
  if (!is_asked) {
    if (!before || !shape.empty() || std::isnan(checkpoint.progress().lr)) return {};
    return unchosen(*before, config, step, checkpoint.progress().lr);
  }
  std::optional<double> lr = checkpoint.next_lr();
  if (!std::isnan(checkpoint.progress().lr)) lr = checkpoint.progress().lr;
  const bool keeps = config.schedule_on_resume == ScheduleOnResume::kKeep;
  return {.schedule = chosen_by_flag(before, config, step, lr),
          .is_explained = true,
          .line = fmt::format("--schedule_on_resume {} applies from step {}",
                              flag_named("schedule_on_resume").show(config), step + 1),
          .warning = keeps && !shape.empty() ? ignored_by_keep(shape, known, now) : ""};
}

}  // namespace mpzero
