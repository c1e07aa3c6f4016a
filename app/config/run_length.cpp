#include "app/config/run_length.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "app/config/schedule_settings.hpp"
#include "base/error.hpp"
#include "base/saturating_product.hpp"
#include "base/words.hpp"

namespace mpzero {
namespace {

constexpr int64_t kNoLimit = std::numeric_limits<int64_t>::max();

int64_t epoch_batch(const RunConfig& config) {
  return config.epoch_batch > 0 ? config.epoch_batch : config.train_batch_size;
}

// Returns the optimizer steps of `num_train_epochs`, counting only complete batches in each epoch.
int64_t steps_of(double num_train_epochs, int64_t num_windows, int64_t batch) {
  const double steps = std::ceil(num_train_epochs * static_cast<double>(num_windows / batch));
  return steps < static_cast<double>(kNoLimit) ? static_cast<int64_t>(steps) : kNoLimit;
}

// Throws UserError if the dataset is smaller than one step.
void check_one_step(const char* flag, double epochs, int64_t num_windows, int64_t steps, const RunConfig& config) {
  if (steps >= 1) return;
  // Only --epochs counts sequences across epochs.
  const bool is_too_small = config.num_train_epochs && num_windows < epoch_batch(config);
  throw_user_error(
      "--{} {} is less than one optimizer step: --train_data has {}, and train_batch_size is {}; {} or reduce the "
      "batch size.",
      flag, epochs, counted(num_windows, "sequence"), config.train_batch_size,
      is_too_small ? "use --epochs instead" : fmt::format("raise --{}", flag));
}

// Returns the Trainer's number of steps. --max_steps and --epochs, if set, must be consistent with this number.
int64_t steps_of_num_train_epochs(const RunConfig& config, int64_t num_windows) {
  const double epochs = *config.num_train_epochs;
  const int64_t steps = steps_of(epochs, num_windows, epoch_batch(config));
  check_one_step("num_train_epochs", epochs, num_windows, steps, config);
  const auto refuse = [&](const char* other, int64_t value, const std::string& remark) {
    throw_user_error("--num_train_epochs {} ({} of {}) and --{} {}{} conflict; keep one of the two.", epochs,
                     counted(steps, "step"), counted(epoch_batch(config), "sequence"), other, value, remark);
  };
  if (config.max_steps_given != kNoLimit && config.max_steps_given != steps) {
    refuse("max_steps", config.max_steps_given, "");
  }
  if (config.epochs) {
    const int64_t other = saturating_product(num_windows, *config.epochs) / epoch_batch(config);
    if (other != steps) refuse("epochs", *config.epochs, fmt::format(" ({})", counted(other, "step")));
  }
  return steps;
}

void check_epochs(const RunConfig& config, int64_t num_windows, std::vector<std::string>& warnings) {
  const int64_t steps = saturating_product(num_windows, *config.epochs) / config.train_batch_size;
  check_one_step("epochs", static_cast<double>(*config.epochs), num_windows, steps, config);
  if (config.max_steps_given != kNoLimit) {
    warnings.push_back(fmt::format(
        "--epochs {} results in {}, but --max_steps is {}; the run ends at the smaller limit, {}.", *config.epochs,
        counted(steps, "step"), config.max_steps_given, steps < config.max_steps_given ? "--epochs" : "--max_steps"));
  }
}

}  // namespace

void resolve_length(const CommandLine& line, RunConfig& config) {
  if (config.counts_epochs() && !line.gives("max_steps")) config.max_steps = kNoLimit;
  config.max_steps_given = config.max_steps;
}

void check_intervals(const RunConfig& config, std::vector<std::string>& warnings) {
  if (config.profile_steps && config.profile_steps->last > config.max_steps) {
    throw_user_error(
        "--profile_steps {}-{} extends past the run's last step, {}; choose earlier steps or a longer run.",
        config.profile_steps->first, config.profile_steps->last, config.max_steps);
  }
  const Origin origin = config.origins.of("logging_freq");
  const bool from_file = origin.kind == Origin::Kind::kFile;
  if (!from_file && origin.kind != Origin::Kind::kFlag) return;
  if (config.logging_freq < config.max_steps || config.max_steps == 1) return;
  warnings.push_back(
      fmt::format("{}{} {} logs only the last of the {} steps; to log more often, pass --logging_freq {}.",
                  from_file ? "" : "--", origin.name, config.logging_freq, config.max_steps, Settings{}.logging_freq));
}

void apply_epochs(RunConfig& config, int64_t num_windows, std::vector<std::string>& warnings, const RunPosition& at) {
  const int64_t batch = config.train_batch_size;
  // After an increase of seq_length, an epoch may have fewer sequences than the run's first batch.
  const int64_t whole = num_windows / epoch_batch(config) * epoch_batch(config);
  config.epoch_sequences = whole > 0 ? whole : num_windows;
  if (config.save_strategy == SaveStrategy::kEpoch) {
    config.checkpoint_freq = num_windows / batch;
    if (config.checkpoint_freq < 1) {
      throw_user_error(
          "--save_strategy epoch: --train_data has {}, fewer than train_batch_size {}; reduce the "
          "batch size, or use --save_strategy steps.",
          counted(num_windows, "sequence"), batch);
    }
  }
  if (!config.counts_epochs()) return;
  const bool as_trainer = config.num_train_epochs.has_value();
  if (!as_trainer) check_epochs(config, num_windows, warnings);
  const int64_t sequences =
      as_trainer ? saturating_product(steps_of_num_train_epochs(config, num_windows), epoch_batch(config))
                 : saturating_product(num_windows, *config.epochs);
  const int64_t end = at.step + std::max<int64_t>(0, sequences - at.sequences_seen) / batch;
  const bool epochs_win = as_trainer || end < config.max_steps_given;
  if (epochs_win) config.origins.set("max_steps", {Origin::Kind::kFlag, as_trainer ? "num_train_epochs" : "epochs"});
  config.max_steps = epochs_win ? end : config.max_steps_given;
  config.sequences = epochs_win ? std::optional(sequences) : std::nullopt;
  const int64_t epoch = as_trainer ? config.epoch_sequences : num_windows;
  fit_schedule(config, epochs_win ? std::max<int64_t>(1, sequences / batch) : config.max_steps,
               static_cast<double>(epoch) / static_cast<double>(batch), warnings);
  if (config.sequences && config.schedule_ends_at_max_steps && at.sequences_seen != at.step * batch) {
    config.schedule =
        config.schedule.placed_at(at.step, static_cast<double>(at.sequences_seen) / static_cast<double>(batch));
  }
  check_intervals(config, warnings);
}

bool saves_at(const RunConfig& config, const RunPosition& at) {
  if (config.checkpoint_freq == 0) return false;
  if (config.save_strategy != SaveStrategy::kEpoch) return at.step % config.checkpoint_freq == 0;
  const int64_t epoch = config.epoch_sequences;
  return at.sequences_seen / epoch > (at.sequences_seen - config.train_batch_size) / epoch;
}

std::optional<int64_t> steps_to_next_save(const RunConfig& config, const RunPosition& at) {
  if (config.checkpoint_freq == 0) return std::nullopt;
  if (config.save_strategy != SaveStrategy::kEpoch) {
    return config.checkpoint_freq - at.step % config.checkpoint_freq;
  }
  const int64_t batch = config.train_batch_size;
  const int64_t epoch = config.epoch_sequences;
  return (epoch - at.sequences_seen % epoch + batch - 1) / batch;
}

}  // namespace mpzero
