#include "parallel/optimizer/lr_schedule.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <type_traits>

namespace mpzero::parallel {
namespace {

// DeepSpeed extends shorter warmups to two steps, so that the logarithm of the length is not 0.
int64_t warmup_length(int64_t warmup_num_steps) { return std::max<int64_t>(2, warmup_num_steps); }

// Returns the warmup progress at iteration i < W. At i = W - 1, the progress is 1 (logarithmic) or (W - 1) / W
// (linear).
double warmup_progress(double iteration, int64_t warmup_num_steps, WarmupType type) {
  const auto length = static_cast<double>(warmup_length(warmup_num_steps));
  if (type == WarmupType::kLinear) return iteration / length;
  return (1.0 / std::log(length)) * std::log(std::min(iteration + 1, length));
}

double lr_at(const ConstantLr& schedule, double) { return schedule.value; }

double lr_at(const WarmupLr& schedule, double iteration) {
  if (iteration < 0) return schedule.min_lr;
  double gamma = 1.0;
  if (iteration < static_cast<double>(warmup_length(schedule.warmup_num_steps))) {
    gamma = warmup_progress(iteration, schedule.warmup_num_steps, schedule.warmup_type);
  }
  return schedule.min_lr + (schedule.max_lr - schedule.min_lr) * gamma;
}

double lr_at(const WarmupDecayLr& schedule, double iteration) {
  if (iteration < 0) return schedule.min_lr;
  const int64_t warmup = warmup_length(schedule.warmup_num_steps);
  double gamma = 0.0;
  if (iteration < static_cast<double>(warmup)) {
    gamma = warmup_progress(iteration, schedule.warmup_num_steps, schedule.warmup_type);
  } else {
    const double left = static_cast<double>(schedule.total_num_steps) - iteration;
    const auto decay_length = static_cast<double>(std::max<int64_t>(1, schedule.total_num_steps - warmup));
    gamma = std::max(0.0, left / decay_length);
  }
  return schedule.min_lr + (schedule.max_lr - schedule.min_lr) * gamma;
}

double lr_at(const WarmupCosineLr& schedule, double iteration) {
  if (iteration < 0) return 0.0;
  const int64_t warmup = warmup_length(schedule.warmup_num_steps);
  double ratio = 0.0;
  if (iteration < static_cast<double>(warmup)) {
    const double progress = warmup_progress(iteration, schedule.warmup_num_steps, schedule.warmup_type);
    ratio = schedule.warmup_min_ratio + progress * (1.0 - schedule.warmup_min_ratio);
  } else {
    const double done = iteration - static_cast<double>(warmup) + 1;
    const auto decay_length = static_cast<double>(std::max<int64_t>(1, schedule.total_num_steps - warmup));
    const double cosine = (1.0 + std::cos(std::numbers::pi * std::min(1.0, done / decay_length))) / 2.0;
    ratio = std::max(0.0, schedule.cos_min_ratio + (1.0 - schedule.cos_min_ratio) * cosine);
  }
  return schedule.peak_lr * ratio;
}

// Returns the fraction of the peak rate after the warmup.
double late_decay(const TrainerLr& schedule, double step) {
  const auto begin = static_cast<double>(schedule.total_num_steps) - schedule.num_decay_steps;
  if (step < begin) return 1.0;
  if (step >= static_cast<double>(schedule.total_num_steps)) return 0.0;
  const double progress = (step - begin) / schedule.num_decay_steps;
  return std::max(0.0, 0.5 * (1.0 + std::cos(std::numbers::pi * progress)));
}

double lr_at(const TrainerLr& schedule, double iteration) {
  const double step = iteration + 1;
  const auto warmup = static_cast<double>(schedule.warmup_num_steps);
  if (step < warmup) return schedule.peak_lr * (step / warmup);
  if (schedule.decay == TrainerDecay::kAtTheEnd) return schedule.peak_lr * late_decay(schedule, step);
  if (schedule.decay == TrainerDecay::kInSteps) {
    constexpr double kRounding = 1e-9;  // tolerance for an epoch's fractional steps
    return schedule.peak_lr * std::pow(schedule.gamma, std::floor(step / schedule.num_decay_steps + kRounding));
  }
  const auto total = static_cast<double>(schedule.total_num_steps);
  const double decay_length = std::max(1.0, total - warmup);
  double ratio = 1.0;
  if (schedule.decay == TrainerDecay::kLinear) {
    ratio = std::max(0.0, (total - step) / decay_length);
  } else if (schedule.decay == TrainerDecay::kCosine) {
    // After the last step the rate is constant. The Trainer's formula would increase again.
    ratio = 0.5 * (1.0 + std::cos(std::numbers::pi * std::min(1.0, (step - warmup) / decay_length)));
  }
  return schedule.peak_lr * ratio;
}

// Returns the warmup progress at an iteration, from 0 to 1, or std::nullopt after the warmup.
std::optional<double> warmup_at(const ConstantLr&, double) { return std::nullopt; }

std::optional<double> warmup_at(const TrainerLr& schedule, double iteration) {
  const double step = iteration + 1;
  const auto warmup = static_cast<double>(schedule.warmup_num_steps);
  if (step >= warmup) return std::nullopt;
  return step / warmup;
}

template <typename Schedule>
std::optional<double> warmup_at(const Schedule& schedule, double iteration) {
  if (iteration < 0) return 0.0;
  if (iteration >= static_cast<double>(warmup_length(schedule.warmup_num_steps))) return std::nullopt;
  return warmup_progress(iteration, schedule.warmup_num_steps, schedule.warmup_type);
}

template <typename Schedule>
auto& peak_of(Schedule& schedule) {
  if constexpr (requires { schedule.max_lr; }) {
    return schedule.max_lr;
  } else if constexpr (requires { schedule.peak_lr; }) {
    return schedule.peak_lr;
  } else {
    return schedule.value;
  }
}

}  // namespace

double LrSchedule::time(int64_t update) const {
  if (!clock_) return static_cast<double>(update);
  return clock_->time + static_cast<double>(update - clock_->step) * clock_->rate;
}

int64_t LrSchedule::update_at(double time, int64_t first) const {
  if (this->time(first) >= time) return first;
  return first + static_cast<int64_t>(std::ceil((time - this->time(first)) / (clock_ ? clock_->rate : 1)));
}

double LrSchedule::lr(int64_t update) const {
  const double now = held_from_ ? std::min(time(update), *held_from_) : time(update);
  if (warmup_from_ && now < 1) return *warmup_from_;
  return std::visit(
      [&](const auto& schedule) {
        const std::optional<double> warmup = warmup_from_ ? warmup_at(schedule, now - 2) : std::nullopt;
        if (warmup) return *warmup_from_ + (peak_of(schedule) - *warmup_from_) * *warmup;
        return lr_at(schedule, now - 2);
      },
      schedule_);
}

double LrSchedule::peak_lr() const {
  return std::visit([](const auto& schedule) -> double { return peak_of(schedule); }, schedule_);
}

std::optional<int64_t> LrSchedule::total_num_steps() const {
  return std::visit(
      [](const auto& schedule) -> std::optional<int64_t> {
        if constexpr (requires { schedule.decay; }) {
          if (schedule.decay == TrainerDecay::kInSteps) return std::nullopt;
        }
        if constexpr (requires { schedule.total_num_steps; }) return schedule.total_num_steps;
        return std::nullopt;
      },
      schedule_);
}

LrSchedule LrSchedule::with_peak_lr(double peak_lr) const {
  LrSchedule changed = *this;
  std::visit([&](auto& schedule) { peak_of(schedule) = peak_lr; }, changed.schedule_);
  return changed;
}

LrSchedule LrSchedule::with_clock(std::optional<Clock> clock) const {
  LrSchedule changed = *this;
  changed.clock_ = clock;
  return changed;
}

LrSchedule LrSchedule::placed_at(int64_t step, double time) const {
  return with_clock(Clock{.step = step, .time = time});
}

LrSchedule LrSchedule::started_after(int64_t step, double lr) const {
  LrSchedule changed = placed_at(step, 0);
  changed.warmup_from_ = lr;
  return changed;
}

LrSchedule LrSchedule::paced_after(int64_t step, double factor) const {
  return with_clock(Clock{.step = step, .time = time(step), .rate = (clock_ ? clock_->rate : 1) * factor});
}

LrSchedule LrSchedule::held_from(double time) const {
  LrSchedule changed = *this;
  changed.held_from_ = time;
  return changed;
}

LrSchedule LrSchedule::held_after(int64_t update) const { return held_from(time(update)); }

int64_t LrSchedule::warmup_num_steps() const {
  return std::visit(
      [](const auto& schedule) -> int64_t {
        if constexpr (requires { schedule.warmup_num_steps; }) return schedule.warmup_num_steps;
        return 0;
      },
      schedule_);
}

LrSchedule LrSchedule::with_total_num_steps(int64_t total_num_steps) const {
  LrSchedule changed = *this;
  std::visit(
      [&](auto& schedule) {
        if constexpr (requires { schedule.total_num_steps; }) schedule.total_num_steps = total_num_steps;
      },
      changed.schedule_);
  return changed;
}

LrSchedule LrSchedule::with_warmup_num_steps(int64_t warmup_num_steps) const {
  LrSchedule changed = *this;
  std::visit(
      [&](auto& schedule) {
        if constexpr (requires { schedule.warmup_num_steps; }) schedule.warmup_num_steps = warmup_num_steps;
      },
      changed.schedule_);
  return changed;
}

}  // namespace mpzero::parallel
