#include "app/config/run_length.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "app/config/schedule_settings.hpp"
#include "base/error.hpp"
#include "base/saturating_product.hpp"

namespace mpzero {
namespace {

constexpr int64_t kNoLimit = std::numeric_limits<int64_t>::max();

// Steps of a whole global batch in `num_windows`.
int64_t steps_of(double num_train_epochs, int64_t num_windows, int64_t train_batch_size) {
  const double steps = std::ceil(num_train_epochs * static_cast<double>(num_windows / train_batch_size));
  return steps < static_cast<double>(kNoLimit) ? static_cast<int64_t>(steps) : kNoLimit;
}

// Throws where the data set does not fill one step.
void check_one_step(const char* flag, double epochs, int64_t num_windows, int64_t steps, const RunConfig& config) {
  if (steps >= 1) return;
  throw_user_error(
      "--{} {} of {} sequences do not fill one optimizer step of {} (train_batch_size); give more --{} or use a "
      "smaller batch.",
      flag, epochs, num_windows, config.train_batch_size, flag);
}

// The Trainer's count. --max_steps and --epochs must agree with it if they are given.
void apply_num_train_epochs(RunConfig& config, int64_t num_windows) {
  const double epochs = *config.num_train_epochs;
  const int64_t steps = steps_of(epochs, num_windows, config.train_batch_size);
  check_one_step("num_train_epochs", epochs, num_windows, steps, config);
  const auto refuse = [&](const char* other, int64_t value, const std::string& remark) {
    throw_user_error(
        "--num_train_epochs {}, which is {} steps of {} sequences, and --{} {}{} contradict each other; "
        "keep one of the two.",
        epochs, steps, config.train_batch_size, other, value, remark);
  };
  if (config.max_steps != kNoLimit && config.max_steps != steps) refuse("max_steps", config.max_steps, "");
  if (config.epochs) {
    const int64_t other = saturating_product(num_windows, *config.epochs) / config.train_batch_size;
    if (other != steps) refuse("epochs", *config.epochs, fmt::format(", which is {},", other));
  }
  config.max_steps = steps;
  config.origins.set("max_steps", {Origin::Kind::kFlag, "num_train_epochs"});
}

}  // namespace

void resolve_length(const CommandLine& line, RunConfig& config) {
  if (config.counts_epochs() && !line.gives("max_steps")) config.max_steps = kNoLimit;
}

void check_profile_steps(const RunConfig& config) {
  if (!config.profile_steps || config.profile_steps->last <= config.max_steps) return;
  throw_user_error("--profile_steps {}-{} goes beyond the run's last step, {}; name earlier steps or train longer.",
                   config.profile_steps->first, config.profile_steps->last, config.max_steps);
}

void apply_epochs(RunConfig& config, int64_t num_windows, std::vector<std::string>& warnings) {
  if (config.save_strategy == SaveStrategy::kEpoch) {
    config.checkpoint_freq = num_windows / config.train_batch_size;
    if (config.checkpoint_freq < 1) {
      throw_user_error(
          "--save_strategy epoch: the {} sequences of --train_data do not fill one optimizer step of {} "
          "(train_batch_size); use a smaller batch, or --save_strategy steps.",
          num_windows, config.train_batch_size);
    }
  }
  if (!config.counts_epochs()) return;
  if (config.num_train_epochs) {
    apply_num_train_epochs(config, num_windows);
  } else {
    const int64_t steps = saturating_product(num_windows, *config.epochs) / config.train_batch_size;
    check_one_step("epochs", static_cast<double>(*config.epochs), num_windows, steps, config);
    const bool epochs_win = steps < config.max_steps;
    if (config.max_steps != kNoLimit) {
      warnings.push_back(fmt::format("--epochs {} is {} steps and --max_steps is {}: the run ends at the smaller, {}.",
                                     *config.epochs, steps, config.max_steps, epochs_win ? "--epochs" : "--max_steps"));
    }
    if (epochs_win) config.origins.set("max_steps", {Origin::Kind::kFlag, "epochs"});
    config.max_steps = std::min(config.max_steps, steps);
  }
  fit_schedule(config, warnings);
  check_profile_steps(config);
}

}  // namespace mpzero
