#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <random>
#include <string>
#include <vector>

// Random sequences of starts of a run, as settings and as command lines.
namespace mpzero::resume_cases {

enum class Kind { kFixed, kWarmupLr, kWarmupDecayLr, kWarmupCosineLr, kConstant, kLinear, kCosine, kStable };

// A schedule. kFixed to kWarmupCosineLr are DeepSpeed's schedules; the others are the Trainer's.
struct Shape {
  Kind kind = Kind::kFixed;
  bool is_log = true;        // DeepSpeed's warmup_type
  double peak = 1e-3;        // the learning rate
  double warmup_min = 0;     // warmup_min_lr; warmup_min_ratio for kWarmupCosineLr
  double cos_min_ratio = 0;  // kWarmupCosineLr only
  int64_t warmup = 0;        // in steps
};

enum class Way { kUnset, kKeep, kRewarm, kExtend };

// Settings of a start. At least one of the three lengths is set.
struct Settings {
  Shape shape;
  std::optional<double> warmup_ratio;   // instead of shape.warmup
  std::optional<int64_t> schedule_end;  // total_num_steps in ds_config.json
  std::optional<int64_t> num_decay_steps;
  std::optional<int64_t> max_steps, epochs;
  std::optional<double> num_train_epochs;
  int64_t num_tokens = 0, batch = 1, seq_length = 1;
  bool has_default_schedule = false;  // mpzero's default without --deepspeed_config: a kWarmupCosineLr
  bool shuffle = false;
  Way way = Way::kUnset;

  int64_t windows() const { return (num_tokens - 1) / seq_length; }
  int64_t steps() const;  // length of a new run
};

// One start of `mpzero train`.
struct Start {
  Settings settings;
  int ranks = 1;
  int64_t micro_batch = 1, accumulation = 1;

  // `folder` contains the token files and the model. Writes ds_config.json to `folder` if the start has one.
  std::vector<std::string> flags(const std::filesystem::path& folder) const;
  std::string command(const std::filesystem::path& folder) const;  // includes the text of ds_config.json
};

inline constexpr int64_t kVocabSize = 1024;
// The folder contains one token file for each of these numbers of tokens. Token i has id i.
inline constexpr int64_t kNumTokens[] = {385, 769, 1000};
std::filesystem::path token_file(const std::filesystem::path& folder, int64_t num_tokens);
void write_files(const std::filesystem::path& folder);

class Generator {
 public:
  explicit Generator(uint64_t seed) : random_(seed) {}

  int64_t between(int64_t least, int64_t most);
  bool one_in(int64_t count) { return between(1, count) == 1; }
  Start first();
  // Changes some of these settings, or none: batch size, layout, seq_length, length, --schedule_on_resume.
  Start next(const Start& before, int64_t step);
  // Selects a random layout for the same global batch.
  void draw_layout(Start& start);
  void draw_batch(Start& start);

 private:
  template <typename T>
  T one_of(std::initializer_list<T> values) {
    return *(values.begin() + between(0, static_cast<int64_t>(values.size()) - 1));
  }
  void draw_schedule(Settings& settings);
  void draw_length(Settings& settings);

  std::mt19937_64 random_;
};

}  // namespace mpzero::resume_cases
