#include "app/config/own_values.hpp"

#include <fmt/ranges.h>

#include <algorithm>

namespace mpzero {
namespace {

// A value that mpzero has chosen, beside the default of the Trainer's command line (transformers 5.23).
struct OwnValue {
  const Origin& origin;
  std::string value;     // with its name
  std::string trainers;  // without
  std::string flag;
};

// A single line for those of `values` that mpzero has chosen.
void warn(const std::string& path, const std::vector<OwnValue>& values, std::vector<std::string>& warnings) {
  std::vector<std::string> reasons, own, trainers, flags;
  for (const OwnValue& value : values) {
    if (value.origin.kind != Origin::Kind::kDefault) continue;
    if (std::find(reasons.begin(), reasons.end(), value.origin.name) == reasons.end()) {
      reasons.push_back(value.origin.name);
    }
    own.push_back(value.value);
    trainers.push_back(value.trainers);
    flags.push_back("--" + value.flag);
  }
  if (own.empty()) return;
  warnings.push_back(fmt::format(
      "{}: {}, so that mpzero's own values hold: {}. The Hugging Face Trainer's are {}. Set them with {}, or "
      "in the file.",
      path, fmt::join(reasons, ", "), fmt::join(own, ", "), fmt::join(trainers, ", "), fmt::join(flags, ", ")));
}

}  // namespace

void warn_of_own_values(const io::DsConfig& file, const RunConfig& config, std::vector<std::string>& warnings) {
  if (!file.given()) return;
  const Origins& origins = config.origins;
  const OptimizerConfig& optimizer = config.optimizer;
  warn(file.path,
       {{origins.lr, fmt::format("lr {}", optimizer.lr), "5e-05", "learning_rate"},
        {origins.beta2, fmt::format("beta2 {}", optimizer.beta2), "0.999", "adam_beta2"},
        {origins.weight_decay, fmt::format("weight decay {}", optimizer.weight_decay), "0", "weight_decay"}},
       warnings);
  if (file.scheduler.type == io::SchedulerType::kNone) {
    warn(file.path,
         {{origins.schedule, fmt::format("the learning rate stays at {}", optimizer.lr), "a line from there to 0",
           "lr_scheduler_type linear (or cosine, constant)"}},
         warnings);
  } else {
    warn(file.path,
         {{origins.warmup, fmt::format("{} warm-up steps", config.schedule.warmup_num_steps()), "0", "warmup_steps"}},
         warnings);
  }
  warn(file.path,
       {{origins.micro_batch, fmt::format("micro-batch {}", config.micro_batch_size), "8",
         "per_device_train_batch_size"}},
       warnings);
  warn(file.path, {{origins.dtype, fmt::format("weights in {}", config.dtype), "fp32", "bf16 true (or false)"}},
       warnings);
}

}  // namespace mpzero
