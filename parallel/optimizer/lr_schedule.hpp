#pragma once

#include <cstdint>
#include <optional>
#include <variant>

namespace mpzero::parallel {

enum class WarmupType { kLog, kLinear };

// DeepSpeed's WarmupLR: warmup from min_lr to max_lr, then constant.
struct WarmupLr {
  double min_lr = 0.0;
  double max_lr = 1e-3;
  int64_t warmup_num_steps = 1000;
  WarmupType warmup_type = WarmupType::kLog;
};

// DeepSpeed's WarmupDecayLR: the warmup of WarmupLR, then linear decay to min_lr at total_num_steps.
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

// Learning rate after the warmup. kAtTheEnd: constant, then cosine decay over the last num_decay_steps. kInSteps:
// multiplied by gamma every num_decay_steps.
enum class TrainerDecay { kLinear, kCosine, kConstant, kAtTheEnd, kInSteps };

// The Hugging Face Trainer's lr_scheduler_type linear, cosine, warmup_stable_decay, constant and constant_with_warmup:
// linear warmup from 0 to peak_lr, then decay to 0 at total_num_steps, or constant. Follows
// transformers/optimization.py (5.23.0), with the default warmup_type, decay_type and min_lr_ratio of
// warmup_stable_decay. kInSteps is PyTorch's StepLR with a warmup.
struct TrainerLr {
  TrainerDecay decay = TrainerDecay::kLinear;
  double peak_lr = 5e-5;
  int64_t warmup_num_steps = 0;
  int64_t total_num_steps = 0;
  double num_decay_steps = 0;  // kAtTheEnd: an integer; kInSteps: may be fractional (an epoch)
  double gamma = 1;            // kInSteps only
};

// Learning rate as a pure function of the update number, so a resumed run needs no scheduler state. All schedules
// except TrainerLr follow deepspeed/runtime/lr_schedules.py (0.19.8).
class LrSchedule {
 public:
  LrSchedule() = default;
  LrSchedule(ConstantLr schedule) : schedule_(schedule) {}
  LrSchedule(WarmupLr schedule) : schedule_(schedule) {}
  LrSchedule(WarmupDecayLr schedule) : schedule_(schedule) {}
  LrSchedule(WarmupCosineLr schedule) : schedule_(schedule) {}
  LrSchedule(TrainerLr schedule) : schedule_(schedule) {}

  // Returns the learning rate of optimizer update `update`, counted from 1. DeepSpeed steps its scheduler after the
  // optimizer, so update k uses iteration k - 2 of the schedule. Update 1 uses iteration -1, whose rate is 0 for
  // WarmupCosineLR and min_lr for the other DeepSpeed schedules. The Trainer's LambdaLR steps once at construction, so
  // update k uses step k - 1.
  double lr(int64_t update) const;

  int64_t warmup_num_steps() const;                // 0 without a warmup
  std::optional<int64_t> total_num_steps() const;  // schedule time; std::nullopt if the schedule has no end
  double peak_lr() const;

  // Return a copy with a different total_num_steps or warmup_num_steps. Schedules without this value are returned
  // unchanged.
  LrSchedule with_total_num_steps(int64_t total_num_steps) const;
  LrSchedule with_warmup_num_steps(int64_t warmup_num_steps) const;
  LrSchedule with_peak_lr(double peak_lr) const;

  // Linear map from optimizer updates to schedule time: t(u) = time + rate * (u - step) for u >= step. Schedule time
  // is measured in optimizer updates of the original run. Without a clock, t(u) = u.
  struct Clock {
    int64_t step = 0;
    double time = 0;
    double rate = 1;
  };
  double time(int64_t update) const;
  // Returns the first update >= `first` whose schedule time is at least `time`.
  int64_t update_at(double time, int64_t first) const;

  // Returns the schedule restarted after update `step`, with a warmup that begins at `lr`.
  LrSchedule started_after(int64_t step, double lr) const;
  // Returns the schedule shifted so that the schedule time at update `step` is `time`.
  LrSchedule placed_at(int64_t step, double time) const;
  // Returns the schedule with a clock that runs `factor` times as fast after update `step` as before.
  LrSchedule paced_after(int64_t step, double factor) const;
  // Returns the schedule with a constant learning rate after update `update`.
  LrSchedule held_after(int64_t update) const;
  const std::optional<Clock>& clock() const { return clock_; }
  const std::optional<double>& warmup_from() const { return warmup_from_; }  // initial rate of started_after()
  const std::optional<double>& held_from() const { return held_from_; }      // time from which lr() is constant
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
