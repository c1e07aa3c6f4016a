#include "parallel/optimizer/lr_schedule.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <type_traits>

namespace mpzero::parallel {
namespace {

// DeepSpeed raises shorter warm-ups to two steps, so that the logarithm of their length is not 0.
int64_t warmup_length(int64_t warmup_num_steps) { return std::max<int64_t>(2, warmup_num_steps); }

// The progress of the warm-up at iteration i < W. Logarithmic: 1 at i = W - 1; linear: (W - 1) / W there.
double warmup_progress(int64_t iteration, int64_t warmup_num_steps, WarmupType type) {
  const auto length = static_cast<double>(warmup_length(warmup_num_steps));
  if (type == WarmupType::kLinear) return static_cast<double>(iteration) / length;
  return (1.0 / std::log(length)) * std::log(static_cast<double>(iteration + 1));
}

double lr_at(const ConstantLr& schedule, int64_t) { return schedule.value; }

double lr_at(const WarmupLr& schedule, int64_t iteration) {
  if (iteration < 0) return schedule.min_lr;
  double gamma = 1.0;
  if (iteration < warmup_length(schedule.warmup_num_steps)) {
    gamma = warmup_progress(iteration, schedule.warmup_num_steps, schedule.warmup_type);
  }
  return schedule.min_lr + (schedule.max_lr - schedule.min_lr) * gamma;
}

double lr_at(const WarmupDecayLr& schedule, int64_t iteration) {
  if (iteration < 0) return schedule.min_lr;
  const int64_t warmup = warmup_length(schedule.warmup_num_steps);
  double gamma = 0.0;
  if (iteration < warmup) {
    gamma = warmup_progress(iteration, schedule.warmup_num_steps, schedule.warmup_type);
  } else {
    const auto left = static_cast<double>(schedule.total_num_steps - iteration);
    const auto decay_length = static_cast<double>(std::max<int64_t>(1, schedule.total_num_steps - warmup));
    gamma = std::max(0.0, left / decay_length);
  }
  return schedule.min_lr + (schedule.max_lr - schedule.min_lr) * gamma;
}

double lr_at(const WarmupCosineLr& schedule, int64_t iteration) {
  if (iteration < 0) return 0.0;
  const int64_t warmup = warmup_length(schedule.warmup_num_steps);
  double ratio = 0.0;
  if (iteration < warmup) {
    const double progress = warmup_progress(iteration, schedule.warmup_num_steps, schedule.warmup_type);
    ratio = schedule.warmup_min_ratio + progress * (1.0 - schedule.warmup_min_ratio);
  } else {
    const auto done = static_cast<double>(iteration - warmup + 1);
    const auto decay_length = static_cast<double>(std::max<int64_t>(1, schedule.total_num_steps - warmup));
    const double cosine = (1.0 + std::cos(std::numbers::pi * std::min(1.0, done / decay_length))) / 2.0;
    ratio = std::max(0.0, schedule.cos_min_ratio + (1.0 - schedule.cos_min_ratio) * cosine);
  }
  return schedule.peak_lr * ratio;
}

// Of the peak, from the end of the warm-up on.
double late_decay(const TrainerLr& schedule, int64_t step) {
  const int64_t begin = schedule.total_num_steps - schedule.num_decay_steps;
  if (step < begin) return 1.0;
  if (step >= schedule.total_num_steps) return 0.0;
  const double progress = static_cast<double>(step - begin) / static_cast<double>(schedule.num_decay_steps);
  return std::max(0.0, 0.5 * (1.0 + std::cos(std::numbers::pi * progress)));
}

double lr_at(const TrainerLr& schedule, int64_t iteration) {
  const int64_t step = iteration + 1;
  const int64_t warmup = schedule.warmup_num_steps;
  if (step < warmup) return schedule.peak_lr * (static_cast<double>(step) / static_cast<double>(warmup));
  if (schedule.decay == TrainerDecay::kAtTheEnd) return schedule.peak_lr * late_decay(schedule, step);
  const auto decay_length = static_cast<double>(std::max<int64_t>(1, schedule.total_num_steps - warmup));
  double ratio = 1.0;
  if (schedule.decay == TrainerDecay::kLinear) {
    ratio = std::max(0.0, static_cast<double>(schedule.total_num_steps - step) / decay_length);
  } else if (schedule.decay == TrainerDecay::kCosine) {
    ratio = 0.5 * (1.0 + std::cos(std::numbers::pi * (static_cast<double>(step - warmup) / decay_length)));
  }
  return schedule.peak_lr * ratio;
}

// How far the warm-up is at an iteration, from 0 to 1; nothing after it.
std::optional<double> warmup_at(const ConstantLr&, int64_t) { return std::nullopt; }

std::optional<double> warmup_at(const TrainerLr& schedule, int64_t iteration) {
  const int64_t step = iteration + 1;
  if (step >= schedule.warmup_num_steps) return std::nullopt;
  return static_cast<double>(step) / static_cast<double>(schedule.warmup_num_steps);
}

template <typename Schedule>
std::optional<double> warmup_at(const Schedule& schedule, int64_t iteration) {
  if (iteration < 0) return 0.0;
  if (iteration >= warmup_length(schedule.warmup_num_steps)) return std::nullopt;
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

double LrSchedule::lr(int64_t update) const {
  if (last_update_) update = std::min(update, *last_update_);
  const int64_t own_update = start_ ? update - start_->step : update;
  if (start_ && own_update < 1) return start_->lr;
  return std::visit(
      [&](const auto& schedule) {
        const std::optional<double> warmup = start_ ? warmup_at(schedule, own_update - 2) : std::nullopt;
        if (warmup) return start_->lr + (peak_of(schedule) - start_->lr) * *warmup;
        return lr_at(schedule, own_update - 2);
      },
      schedule_);
}

double LrSchedule::peak_lr() const {
  return std::visit([](const auto& schedule) -> double { return peak_of(schedule); }, schedule_);
}

std::optional<int64_t> LrSchedule::total_num_steps() const {
  return std::visit(
      [](const auto& schedule) -> std::optional<int64_t> {
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

LrSchedule LrSchedule::started_after(int64_t step, double lr) const {
  LrSchedule changed = *this;
  changed.start_ = Start{.step = step, .lr = lr};
  return changed;
}

LrSchedule LrSchedule::held_after(int64_t update) const {
  LrSchedule changed = *this;
  changed.last_update_ = update;
  return changed;
}

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
