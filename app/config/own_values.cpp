#include "app/config/own_values.hpp"

#include <fmt/ranges.h>

#include <algorithm>

#include "app/flags/options.hpp"
#include "app/flags/training_flags.hpp"

namespace mpzero {
namespace {

// An effective value, and the Trainer's default (transformers 5.23).
struct OwnValue {
  Origin origin;
  std::string value;     // name and value
  std::string trainers;  // value only
  std::string flag;      // Trainer's flag and accepted values
  bool differs = true;
};

// `value`: name and value. `takes`: accepted values.
OwnValue own_value(const RunConfig& config, const std::string& name, const std::string& value, const char* takes = "") {
  const Flag& flag = flag_named(name);
  const std::string& trainers_name = flag.trainer.value().name;
  CommandLine trainers;
  if (!flag.trainer->default_value.empty()) flag.read(trainers, flag.name, flag.trainer->default_value);
  return {.origin = config.origins.of(name),
          .value = value,
          .trainers = flag.trainer->default_value,
          .flag = (trainers_name.empty() ? flag.name : trainers_name) + takes,
          .differs = flag.show(trainers) != flag.show(config)};
}

// Adds a single warning for all mpzero defaults in `values` that differ from the Trainer's defaults.
void warn(const std::string& path, const std::vector<OwnValue>& values, std::vector<std::string>& warnings) {
  std::vector<std::string> reasons, own, trainers, flags;
  for (const OwnValue& value : values) {
    if (value.origin.kind != Origin::Kind::kDefault || !value.differs) continue;
    if (std::find(reasons.begin(), reasons.end(), value.origin.name) == reasons.end()) {
      reasons.push_back(value.origin.name);
    }
    own.push_back(value.value);
    trainers.push_back(value.trainers);
    flags.push_back("--" + value.flag);
  }
  if (own.empty()) return;
  warnings.push_back(fmt::format(
      "{}: {}, so mpzero's defaults apply: {}. The Hugging Face Trainer would use {}. To override a default, pass {}, "
      "or set the key in the file.",
      path, fmt::join(reasons, ", "), fmt::join(own, ", "), fmt::join(trainers, ", "), fmt::join(flags, ", ")));
}

}  // namespace

void warn_of_own_values(const io::DsConfig& file, const RunConfig& config, std::vector<std::string>& warnings) {
  if (!file.given()) return;
  const OptimizerConfig& optimizer = config.optimizer;
  warn(file.path,
       {own_value(config, "learning_rate", fmt::format("lr {}", optimizer.lr)),
        own_value(config, "beta2", fmt::format("beta2 {}", optimizer.beta2)),
        own_value(config, "weight_decay", fmt::format("weight decay {}", optimizer.weight_decay))},
       warnings);
  if (file.scheduler.type == io::SchedulerType::kNone) {
    OwnValue schedule =
        own_value(config, "lr_scheduler_type", fmt::format("the learning rate stays at {}", optimizer.lr),
                  " linear (or cosine, constant)");
    schedule.origin = config.origins.schedule;
    schedule.trainers = "linear to 0";
    warn(file.path, {schedule}, warnings);
  } else {
    OwnValue warmup =
        own_value(config, "warmup_steps", fmt::format("{} warm-up steps", config.schedule.warmup_num_steps()));
    warmup.origin = config.origins.warmup;
    warn(file.path, {warmup}, warnings);
  }
  warn(file.path,
       {own_value(config, "train_micro_batch_size_per_gpu", fmt::format("micro-batch {}", config.micro_batch_size))},
       warnings);
  OwnValue weights = own_value(config, "bf16", fmt::format("weights in {}", config.dtype), " true (or false)");
  weights.trainers = "fp32";
  warn(file.path, {weights}, warnings);
}

std::optional<std::string> slow_dtype(const RunConfig& config, bool is_cpu, bool multiplies_bf16) {
  if (!is_cpu) {
    if (config.dtype != "fp32" || config.origins.of("bf16").kind != Origin::Kind::kDeepSpeedDefault) {
      return std::nullopt;
    }
    return fmt::format(
        "{} does not set bf16.enabled, so the run uses fp32, as in DeepSpeed; pass --bf16 true to train in bf16, which "
        "is faster on GPUs",
        config.ds_config_path);
  }
  if (config.dtype != "bf16" || multiplies_bf16) return std::nullopt;
  const bool is_fp8 = config.fp8 != "none";  // requires bf16
  std::vector<std::string> flags{"bf16"};
  if (is_fp8) flags.emplace_back("fp8");
  return fmt::format(
      "bf16 is about 10 times slower than fp32 on rank 0's CPU, which lacks bf16 matmul instructions; pass --bf16 "
      "false{}{} to train in fp32",
      is_fp8 ? " --fp8 none" : "", yields_for(config, flags));
}

}  // namespace mpzero
