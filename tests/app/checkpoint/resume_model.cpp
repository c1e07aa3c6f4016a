#include "tests/app/checkpoint/resume_model.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace mpzero::resume_model {
namespace {

constexpr double kPi = 3.14159265358979323846;
constexpr double kAlmostNothing = 0.01;  // of the peak
constexpr int64_t kUnlimited = std::numeric_limits<int64_t>::max();

double half_cosine(double progress) { return 0.5 * (1 + std::cos(kPi * std::clamp(progress, 0.0, 1.0))); }

bool is_trainers(Kind kind) { return kind >= Kind::kConstant; }

// From 0 to 1 during the warm-up; nothing after it.
std::optional<double> warmup_progress(const Shape& shape, double time) {
  if (shape.kind == Kind::kFixed) return std::nullopt;
  if (is_trainers(shape.kind)) {  // LambdaLR: update k has step k - 1
    const double step = time - 1;
    return step < shape.warmup ? std::optional(step / std::max(1.0, shape.warmup)) : std::nullopt;
  }
  // DeepSpeed steps its scheduler after the optimizer: update k has last_batch_iteration k - 2.
  const double iteration = time - 2, warmup = std::max(2.0, shape.warmup);
  if (iteration < 0) return 0.0;
  if (iteration >= warmup) return std::nullopt;
  if (!shape.is_log) return iteration / warmup;
  return std::min(1.0, std::log(iteration + 1) / std::log(warmup));  // a real-valued time may lie past the top
}

// After the warm-up, as a share of the way from the end's rate to the peak's.
double decay_share(const Shape& shape, double time) {
  const double warmup = std::max(2.0, shape.warmup), iteration = time - 2, step = time - 1;
  switch (shape.kind) {
    case Kind::kWarmupDecayLr:
      return std::max(0.0, (shape.total - iteration) / std::max(1.0, shape.total - warmup));
    case Kind::kWarmupCosineLr:
      return half_cosine((iteration - warmup + 1) / std::max(1.0, shape.total - warmup));
    case Kind::kLinear:
      return std::max(0.0, (shape.total - step) / std::max(1.0, shape.total - shape.warmup));
    case Kind::kCosine:
      return half_cosine((step - shape.warmup) / std::max(1.0, shape.total - shape.warmup));
    case Kind::kStable:
      return half_cosine((step - (shape.total - shape.decay)) / std::max(1.0, shape.decay));
    default:
      return 1;
  }
}

double first_rate(const Shape& shape) {
  if (is_trainers(shape.kind)) return 0;
  return shape.kind == Kind::kWarmupCosineLr ? shape.warmup_min * shape.peak : shape.warmup_min;
}

double last_rate(const Shape& shape) {
  if (shape.kind == Kind::kWarmupDecayLr) return shape.warmup_min;
  return shape.kind == Kind::kWarmupCosineLr ? shape.cos_min_ratio * shape.peak : 0;
}

// The sequences that --epochs or --num_train_epochs ask for.
std::optional<int64_t> sequences_of_epochs(const Settings& settings) {
  const int64_t windows = settings.windows();
  if (settings.epochs) return *settings.epochs * windows;
  if (!settings.num_train_epochs) return std::nullopt;
  const double steps = *settings.num_train_epochs * static_cast<double>(windows / settings.epoch_batch());
  return static_cast<int64_t>(std::ceil(steps)) * settings.epoch_batch();
}

// Whether the schedule proceeds by sequences and not by steps.
bool counts_sequences(const Settings& settings, const Plan& plan) {
  return plan.ends_by_epochs && !settings.schedule_end && settings.shape.has_end();
}

// The schedule of a new run.
Shape fitted(const Settings& settings, int64_t steps) {
  Shape shape = settings.shape;
  shape.total = static_cast<double>(settings.schedule_end.value_or(steps));
  if (settings.warmup_ratio) {
    shape.warmup = std::ceil(static_cast<double>(steps) * *settings.warmup_ratio);
    if (!is_trainers(shape.kind)) shape.warmup = std::max(1.0, shape.warmup);
  }
  if (shape.kind == Kind::kStable) {
    shape.decay = static_cast<double>(settings.num_decay_steps.value_or((steps + 9) / 10));
    if (shape.warmup + shape.decay > static_cast<double>(steps)) throw Refused("warm-up and decay exceed the run");
  }
  return shape;
}

double tokens_of_step(const Settings& settings) {
  return static_cast<double>(settings.batch) * static_cast<double>(settings.seq_length);
}

// Whether the user has given the schedule another length: of the lengths that follow from that of the run, as many
// tokens are no change.
bool changes_length(const Run& run, const Settings& now, const Plan& plan) {
  const Shape before = fitted(run.settings, run.plan.length), after = fitted(now, plan.length);
  if (!counts_sequences(now, plan)) {
    const bool same_end = !now.shape.has_end() || before.total == after.total;
    return !same_end || before.warmup != after.warmup || before.decay != after.decay;
  }
  const double tokens_before = tokens_of_step(run.settings), tokens_now = tokens_of_step(now);
  const auto differ = [&](double one, double other) {
    return std::abs(one * tokens_before - other * tokens_now) >= std::max(tokens_before, tokens_now);
  };
  return differ(before.total, after.total) || (before.warmup != after.warmup && differ(before.warmup, after.warmup)) ||
         (before.decay != after.decay && differ(before.decay, after.decay));
}

bool same_rate(double a, double b) { return std::abs(a - b) <= 1e-9 * std::abs(b); }

int64_t resumed_position(const Run& run, const Settings& now) {
  if (now.seq_length == run.settings.seq_length) return run.position;
  const int64_t before = run.settings.windows(), after = now.windows();
  const int64_t offset = run.position % before * run.settings.seq_length;
  const int64_t next = (offset + now.seq_length - 1) / now.seq_length;
  return run.position / before * after + std::min(after, next);
}

Schedule held(Schedule schedule, int64_t step) {
  if (schedule.held_from || !schedule.shape.has_end()) return schedule;
  schedule.held_from = std::max(schedule.shape.total, schedule.time_of(step));
  return schedule;
}

Schedule rewarmed(const Run& run, Shape shape, const Settings& now, const Plan& plan) {
  const double rate = run.schedule.rate(run.step);
  double pace = 1;  // the next update is the schedule's first, the last one its last
  if (shape.has_end()) {
    const double end = now.schedule_end ? shape.total : static_cast<double>(plan.last_step);
    const double left = end - static_cast<double>(run.step);
    if (left < 1) throw Refused("the schedule ends before the checkpoint");
    if (left > 1) pace = (shape.total - 1) / (left - 1);
  }
  if (shape.warmup == 0) {
    if (rate < kAlmostNothing * shape.peak) throw Refused("no decay can begin at almost nothing");
    shape.peak = rate;
  }
  return {.shape = shape, .step = run.step, .time = 1 - pace, .pace = pace, .warmup_from = rate, .held_from = {}};
}

}  // namespace

double Schedule::rate(int64_t update) const {
  const double now = held_from ? std::min(*held_from, time_of(update)) : time_of(update);
  if (warmup_from && now < 1) return *warmup_from;
  if (const auto progress = warmup_progress(shape, now)) {
    if (!warmup_from && shape.kind == Kind::kWarmupCosineLr && now < 2) return 0;  // before DeepSpeed's first step
    const double first = warmup_from.value_or(first_rate(shape));
    return first + (shape.peak - first) * *progress;
  }
  return last_rate(shape) + (shape.peak - last_rate(shape)) * decay_share(shape, now);
}

Plan plan_of(const Settings& settings, int64_t step, int64_t position) {
  const int64_t max_steps = settings.max_steps.value_or(kUnlimited);
  Plan plan{.last_step = max_steps, .length = max_steps};
  if (const auto sequences = sequences_of_epochs(settings)) {
    const int64_t end = step + std::max<int64_t>(0, (*sequences - position) / settings.batch);
    if (end < max_steps)
      plan = {.last_step = end, .length = std::max<int64_t>(1, *sequences / settings.batch), .ends_by_epochs = true};
  }
  return plan;
}

bool saves_epoch(const Settings& settings, int64_t position) {
  const int64_t epoch = settings.windows() / settings.epoch_batch() * settings.epoch_batch();
  return position / epoch > (position - settings.batch) / epoch;
}

void Run::train_until(int64_t stop) {
  position += (stop - step) * settings.batch;
  tokens += (stop - step) * settings.batch * settings.seq_length;
  step = stop;
}

Run begin(const Settings& settings) {
  const Plan plan = plan_of(settings);
  if (plan.length < 1) throw Refused("the data does not fill a step");
  return {.settings = settings, .schedule = {.shape = fitted(settings, plan.length)}, .plan = plan, .choice = "new"};
}

Run resume(const Run& run, const Settings& now) {
  Run next = run;
  next.settings = now;
  next.settings.first_batch = run.settings.epoch_batch();
  next.position = resumed_position(run, now);
  const Plan plan = next.plan = plan_of(next.settings, run.step, next.position);
  if (plan.length < 1) throw Refused("the data does not fill a step");
  if (plan.last_step <= run.step) throw Refused("nothing to train");
  const Shape of_settings = fitted(now, plan.length);

  // The checkpoint's schedule, at the pace at which this start's steps take sequences.
  Schedule kept = run.schedule;
  if (counts_sequences(now, plan)) {
    const double pace = kept.pace * tokens_of_step(now) / tokens_of_step(run.settings);
    kept = {kept.shape, run.step, kept.time_of(run.step), pace, kept.warmup_from, kept.held_from};
  }
  next.schedule = kept;
  next.choice = "unchanged";
  const bool is_asked = now.way != Way::kUnset && now.way != run.settings.way;
  if (!is_asked && !changes_length(run, now, plan)) return next;

  Schedule extended{.shape = of_settings, .step = run.step, .time = static_cast<double>(run.step)};
  if (counts_sequences(now, plan)) extended.time = static_cast<double>(next.position) / static_cast<double>(now.batch);
  const Schedule held_on = held(kept, run.step);
  const bool ends_at_nothing = held_on.held_from && held_on.time_of(plan.last_step) > *held_on.held_from &&
                               held_on.rate(plan.last_step) < kAlmostNothing * held_on.shape.peak;
  const bool goes_on = same_rate(extended.rate(run.step + 1), kept.rate(run.step + 1));
  Way way = now.way;
  if (way == Way::kUnset) way = goes_on ? Way::kExtend : ends_at_nothing ? Way::kRewarm : Way::kKeep;
  next.schedule = way == Way::kExtend ? extended : way == Way::kKeep ? held_on : rewarmed(run, of_settings, now, plan);
  if (now.way == Way::kUnset && way == Way::kRewarm) {
    int64_t few = 0;
    for (int64_t update = run.step + 1; update <= plan.last_step; ++update) {
      if (next.schedule.rate(update) < kAlmostNothing * of_settings.peak) ++few;
    }
    if (2 * few > plan.last_step - run.step) throw Refused("most steps would train at almost nothing");
  }
  next.choice = way == Way::kExtend ? "extend" : way == Way::kKeep ? "keep" : "rewarm";
  return next;
}

}  // namespace mpzero::resume_model
