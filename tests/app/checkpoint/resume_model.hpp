#pragma once

#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>

// Which sequence a run trains at which learning rate, over any chain of resumes: a second implementation of the rules
// in docs/runs.md, for tests. It shares no code with the product. The rates follow deepspeed/runtime/lr_schedules.py
// (0.19.8) and transformers/optimization.py (5.23.0).
namespace mpzero::resume_model {

enum class Kind { kFixed, kWarmupLr, kWarmupDecayLr, kWarmupCosineLr, kConstant, kLinear, kCosine, kStable };

// A schedule with its lengths in steps. kFixed to kWarmupCosineLr are DeepSpeed's, the others the Trainer's.
struct Shape {
  Kind kind = Kind::kFixed;
  bool is_log = true;        // DeepSpeed's warmup_type
  double peak = 1e-3;        // the learning rate
  double warmup_min = 0;     // warmup_min_lr, of kWarmupCosineLr warmup_min_ratio
  double cos_min_ratio = 0;  // of kWarmupCosineLr
  double warmup = 0;
  double total = 0;
  double decay = 0;  // of kStable

  bool has_end() const { return kind != Kind::kFixed && kind != Kind::kWarmupLr; }
};

// A schedule that resumes have placed: at `step` it is at `time`, and each later step advances it by `pace`.
struct Schedule {
  Shape shape;
  int64_t step = 0;
  double time = 0;
  double pace = 1;
  std::optional<double> warmup_from{};  // the rate at which a second warm-up begins
  std::optional<double> held_from{};    // the time after which the rate stays

  double time_of(int64_t update) const { return time + static_cast<double>(update - step) * pace; }
  double rate(int64_t update) const;
};

enum class Way { kUnset, kKeep, kRewarm, kExtend };

// What a start is given. At least one of the three lengths.
struct Settings {
  Shape shape;                          // `warmup` as given; the lengths that are not given are fitted
  std::optional<double> warmup_ratio;   // instead of shape.warmup
  std::optional<int64_t> schedule_end;  // total_num_steps of the file
  std::optional<int64_t> num_decay_steps;
  std::optional<int64_t> max_steps, epochs;
  std::optional<double> num_train_epochs;
  int64_t num_tokens = 0, batch = 1, seq_length = 1;
  int64_t first_batch = 0;            // of the run, by which epochs are counted; 0: `batch`
  bool has_default_schedule = false;  // that of mpzero without --deepspeed_config: a kWarmupCosineLr
  bool shuffle = false;
  Way way = Way::kUnset;

  int64_t epoch_batch() const { return first_batch > 0 ? first_batch : batch; }
  int64_t windows() const { return (num_tokens - 1) / seq_length; }
};

// How long a run is that is at some step and position.
struct Plan {
  int64_t last_step = 0;
  int64_t length = 0;  // of a new run with these settings
  bool ends_by_epochs = false;
};
Plan plan_of(const Settings& settings, int64_t step = 0, int64_t position = 0);

// The start is refused.
class Refused : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// A run between two of its starts.
struct Run {
  Settings settings;
  Schedule schedule;
  int64_t step = 0;      // steps done
  int64_t position = 0;  // the next sequence, counted over epochs
  int64_t tokens = 0;
  Plan plan;
  std::string choice{};  // what a resume has decided about the schedule

  void train_until(int64_t stop);
  // The next sequence's window, counted over epochs, of sample `sample` of step `update`.
  int64_t sequence(int64_t update, int64_t sample) const {
    return position + (update - 1 - step) * settings.batch + sample;
  }
};

Run begin(const Settings& settings);
Run resume(const Run& run, const Settings& now);

// Whether the step that ends at `position` is one after which --save_strategy epoch saves.
bool saves_epoch(const Settings& settings, int64_t position);

}  // namespace mpzero::resume_model
