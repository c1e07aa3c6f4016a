#pragma once

#include <cstdint>
#include <optional>
#include <variant>

namespace mpzero::parallel {

enum class WarmupType { kLog, kLinear };

// DeepSpeed's WarmupLR: from min_lr to max_lr, then constant.
struct WarmupLr {
  double min_lr = 0.0;
  double max_lr = 1e-3;
  int64_t warmup_num_steps = 1000;
  WarmupType warmup_type = WarmupType::kLog;
};

// DeepSpeed's WarmupDecayLR: WarmupLR's warm-up, then linear decay towards min_lr, reached at total_num_steps.
struct WarmupDecayLr {
  double min_lr = 0.0;
  double max_lr = 1e-3;
  int64_t warmup_num_steps = 1000;
  int64_t total_num_steps = 0;
  WarmupType warmup_type = WarmupType::kLog;
};

// DeepSpeed's WarmupCosineLR: ratios are relative to peak_lr, the optimizer's learning rate.
struct WarmupCosineLr {
  double peak_lr = 1e-3;
  double warmup_min_ratio = 0.0;
  double cos_min_ratio = 1e-4;
  int64_t warmup_num_steps = 1000;
  int64_t total_num_steps = 0;
  WarmupType warmup_type = WarmupType::kLog;
};

struct ConstantLr {
  double value = 1e-3;
};

// The schedule after the warm-up. kAtTheEnd: constant, then cosine decay over the last num_decay_steps. kInSteps:
// multiplied by gamma every num_decay_steps.
enum class TrainerDecay { kLinear, kCosine, kConstant, kAtTheEnd, kInSteps };

// The Hugging Face Trainer's lr_scheduler_type linear, cosine, warmup_stable_decay, and constant or
// constant_with_warmup: linear from 0 to peak_lr, then decaying to 0 at total_num_steps, or constant. Follows
// transformers/optimization.py (5.23.0), with warmup_stable_decay's default warmup_type, decay_type and min_lr_ratio.
// kInSteps is PyTorch's StepLR, with a warm-up.
struct TrainerLr {
  TrainerDecay decay = TrainerDecay::kLinear;
  double peak_lr = 5e-5;
  int64_t warmup_num_steps = 0;
  int64_t total_num_steps = 0;
  double num_decay_steps = 0;  // kAtTheEnd: an integer; kInSteps: may be fractional (an epoch)
  double gamma = 1;            // for kInSteps
};

// The learning rate of every optimizer update as a pure function of the update's number, so that a resumed run needs no
// state except its step. All but TrainerLr follow deepspeed/runtime/lr_schedules.py (0.19.8).
class LrSchedule {
 public:
  LrSchedule() = default;
  LrSchedule(ConstantLr schedule) : schedule_(schedule) {}
  LrSchedule(WarmupLr schedule) : schedule_(schedule) {}
  LrSchedule(WarmupDecayLr schedule) : schedule_(schedule) {}
  LrSchedule(WarmupCosineLr schedule) : schedule_(schedule) {}
  LrSchedule(TrainerLr schedule) : schedule_(schedule) {}

  // The rate of optimizer update `update`, counted from 1. DeepSpeed steps its scheduler after the optimizer, so update
  // k uses the schedule's iteration k - 2; iteration -1, that of update 1, is 0 under WarmupCosineLR and min_lr under
  // the others. torch's LambdaLR, which the Trainer uses, steps once at construction, so update k uses its step k - 1.
  double lr(int64_t update) const;

  int64_t warmup_num_steps() const;                // 0 if there are none
  std::optional<int64_t> total_num_steps() const;  // in the schedule's time; std::nullopt if it has no end
  double peak_lr() const;

  // The same schedule with another total_num_steps, or warmup_num_steps, if it has one.
  LrSchedule with_total_num_steps(int64_t total_num_steps) const;
  LrSchedule with_warmup_num_steps(int64_t warmup_num_steps) const;
  LrSchedule with_peak_lr(double peak_lr) const;

  // Maps updates to the schedule's time, in updates of the run that it was created for: `time` at update `step`, plus
  // `rate` per later update. Without a clock, the time is the update's number. Undefined before `step`.
  struct Clock {
    int64_t step = 0;
    double time = 0;
    double rate = 1;
  };
  double time(int64_t update) const;
  // The first update, from `first` on, whose time is at least `time`.
  int64_t update_at(double time, int64_t first) const;

  // The same schedule, with its first update after `step` and a warm-up that begins at `lr`.
  LrSchedule started_after(int64_t step, double lr) const;
  // The same schedule, shifted to `time` at update `step`.
  LrSchedule placed_at(int64_t step, double time) const;
  // The same schedule, `factor` times as fast from update `step` on.
  LrSchedule paced_after(int64_t step, double factor) const;
  // The same schedule up to this update, constant afterwards.
  LrSchedule held_after(int64_t update) const;
  const std::optional<Clock>& clock() const { return clock_; }
  const std::optional<double>& warmup_from() const { return warmup_from_; }  // of started_after()
  const std::optional<double>& held_from() const { return held_from_; }  // the time after which the rate is constant
  LrSchedule with_clock(std::optional<Clock> clock) const;
  LrSchedule held_from(double time) const;

  using Variant = std::variant<ConstantLr, WarmupLr, WarmupDecayLr, WarmupCosineLr, TrainerLr>;
  const Variant& variant() const { return schedule_; }

 private:
  Variant schedule_;
  std::optional<Clock> clock_;
  std::optional<double> warmup_from_;
  std::optional<double> held_from_;
};

}  // namespace mpzero::parallel
