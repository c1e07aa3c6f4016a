#include "app/config/schedule_settings.hpp"

#include <algorithm>
#include <cmath>
#include <variant>

#include "base/error.hpp"
#include "base/words.hpp"

namespace mpzero {
namespace {

using io::DsConfig;
using io::SchedulerType;
using parallel::TrainerDecay;

constexpr int64_t kDefaultWarmupSteps = 100;

const char* name_of(SchedulerType type) {
  switch (type) {
    case SchedulerType::kNone:
      return "missing";
    case SchedulerType::kWarmupLR:
      return "WarmupLR";
    case SchedulerType::kWarmupDecayLR:
      return "WarmupDecayLR";
    case SchedulerType::kWarmupCosineLR:
      return "WarmupCosineLR";
  }
  return "";
}

std::optional<Origin> warmup_flag(const CommandLine& line) {
  if (line.warmup_ratio) return Origin{Origin::Kind::kFlag, line.name_of("warmup_ratio")};
  if (line.warmup_steps) return Origin{Origin::Kind::kFlag, line.name_of("warmup_steps")};
  return std::nullopt;
}

void use_trainer_schedule(const CommandLine& line, RunConfig& config) {
  const std::string& type = line.lr_scheduler_type;
  const TrainerDecay decay = type == "linear"                ? TrainerDecay::kLinear
                             : type == "cosine"              ? TrainerDecay::kCosine
                             : type == "warmup_stable_decay" ? TrainerDecay::kAtTheEnd
                             : type == "step_lr"             ? TrainerDecay::kInSteps
                                                             : TrainerDecay::kConstant;
  config.schedule = parallel::TrainerLr{.decay = decay,
                                        .peak_lr = config.optimizer.lr,
                                        .warmup_num_steps = line.warmup_steps.value_or(0),
                                        .total_num_steps = config.max_steps,
                                        .num_decay_steps = static_cast<double>(line.num_decay_steps.value_or(0)),
                                        .gamma = line.lr_gamma.value_or(1)};
  config.schedule_ends_at_max_steps = true;
  config.origins.schedule = {Origin::Kind::kFlag, line.name_of("lr_scheduler_type")};
  config.origins.warmup = warmup_flag(line).value_or(Origin{Origin::Kind::kDefault, "as in the Trainer"});
}

void use_own_schedule(const CommandLine& line, RunConfig& config) {
  config.schedule = parallel::WarmupCosineLr{.peak_lr = config.optimizer.lr,
                                             .warmup_min_ratio = 0.0,
                                             .cos_min_ratio = 0.0,
                                             .warmup_num_steps = line.warmup_steps.value_or(kDefaultWarmupSteps),
                                             .total_num_steps = config.max_steps,
                                             .warmup_type = parallel::WarmupType::kLog};
  config.schedule_ends_at_max_steps = true;
  config.origins.warmup = warmup_flag(line).value_or(Origin{});
}

void use_constant_rate(const CommandLine& line, ConfigMerge& merge, RunConfig& config) {
  if (line.warmup_steps.value_or(0) > 0) merge.disagree("warmup_steps", *line.warmup_steps, "scheduler", "is missing");
  if (line.warmup_ratio) merge.disagree("warmup_ratio", *line.warmup_ratio, "scheduler", "is missing");
  config.schedule = parallel::ConstantLr{config.optimizer.lr};
  config.origins.schedule.name = "scheduler is missing";
}

// DeepSpeed's schedules require at least one warm-up step, so "auto" is at least 1, as in the Trainer.
int64_t resolve_warmup(const CommandLine& line, const io::SchedulerSection& section, ConfigMerge& merge,
                       RunConfig& config) {
  const int64_t warmup =
      merge.value("warmup_steps", line.warmup_steps, "scheduler.params.warmup_num_steps", section.warmup_num_steps,
                  /*section_present=*/true, kDefaultWarmupSteps, config.origins.warmup);
  if (config.warmup_ratio && (!section.warmup_num_steps.given() ||
                              (line.deepspeed_config_yields && merge.flag_holds("warmup_ratio", *config.warmup_ratio,
                                                                                "scheduler.params.warmup_num_steps",
                                                                                section.warmup_num_steps.value)))) {
    config.origins.warmup = *warmup_flag(line);
  }
  return section.warmup_num_steps.is_auto() ? std::max<int64_t>(1, warmup) : warmup;
}

// WarmupLR and WarmupDecayLR have a peak learning rate that is independent of the optimizer's lr.
double resolve_max_lr(const CommandLine& line, const DsConfig& file, ConfigMerge& merge, const RunConfig& config,
                      std::vector<std::string>& warnings) {
  const io::SchedulerSection& section = file.scheduler;
  const double peak = config.optimizer.lr;
  if (section.warmup_max_lr.given()) {
    const double max_lr = section.warmup_max_lr.value;
    if (line.gives("learning_rate") && line.optimizer.lr != max_lr &&
        merge.flag_holds("learning_rate", line.optimizer.lr, "scheduler.params.warmup_max_lr", max_lr)) {
      return peak;
    }
    return max_lr;
  }
  if (!section.warmup_max_lr.missing() || section.type != SchedulerType::kWarmupDecayLR) return peak;
  const double max_lr = section.warmup_max_lr.value;
  if (max_lr != peak) {
    warnings.push_back(
        fmt::format("{}: scheduler.params.warmup_max_lr is not set, so the peak learning rate is DeepSpeed's default "
                    "{} instead of the optimizer's lr {}.",
                    file.path, max_lr, peak));
  }
  return max_lr;
}

// Uses the scheduler section of ds_config.json. The schedule ends at total_num_steps or, by default, at max_steps.
void use_section(const CommandLine& line, const DsConfig& file, ConfigMerge& merge, RunConfig& config,
                 std::vector<std::string>& warnings) {
  const io::SchedulerSection& section = file.scheduler;
  const int64_t warmup = resolve_warmup(line, section, merge, config);
  const auto type = section.warmup_type.value == "linear" ? parallel::WarmupType::kLinear : parallel::WarmupType::kLog;
  const bool has_end = section.type != SchedulerType::kWarmupLR;
  const bool end_is_given = has_end && section.total_num_steps.given();
  config.schedule_ends_at_max_steps = has_end && !end_is_given;
  const int64_t total = end_is_given ? section.total_num_steps.value : config.max_steps;
  if (end_is_given && !config.counts_epochs() && total != config.max_steps) {
    warnings.push_back(fmt::format("{}: scheduler.params.total_num_steps is {}, but the run ends at --max_steps {}.",
                                   file.path, total, config.max_steps));
  }
  config.origins.schedule = {Origin::Kind::kFile, "scheduler.type"};
  if (end_is_given) config.origins.schedule_end = {Origin::Kind::kFile, "scheduler.params.total_num_steps"};

  if (section.type == SchedulerType::kWarmupCosineLR) {
    config.schedule = parallel::WarmupCosineLr{
        config.optimizer.lr, section.warmup_min_ratio.value, section.cos_min_ratio.value, warmup, total, type};
    return;
  }
  const double max_lr = resolve_max_lr(line, file, merge, config, warnings);
  const double min_lr = section.warmup_min_lr.value;
  if (has_end) {
    config.schedule = parallel::WarmupDecayLr{min_lr, max_lr, warmup, total, type};
  } else {
    config.schedule = parallel::WarmupLr{min_lr, max_lr, warmup, type};
  }
}

// Sets the default number of decay steps: 10% of all steps, rounded up, or one epoch for step_lr.
void fit_decay(RunConfig& config, int64_t steps, double epoch) {
  const auto* schedule = std::get_if<parallel::TrainerLr>(&config.schedule.variant());
  if (schedule == nullptr) return;
  parallel::TrainerLr fitted = *schedule;
  if (schedule->decay == TrainerDecay::kInSteps && !config.num_decay_steps) {
    fitted.num_decay_steps = std::max(1.0, epoch);
    config.schedule = fitted;
  }
  if (schedule->decay != TrainerDecay::kAtTheEnd) return;
  const int64_t decay = config.num_decay_steps.value_or((steps + 9) / 10);
  fitted.num_decay_steps = static_cast<double>(decay);
  if (fitted.warmup_num_steps + decay > steps) {
    throw_user_error(
        "--lr_scheduler_type warmup_stable_decay: {} and --num_decay_steps {} exceed the run's {}; "
        "reduce one of them.",
        counted(static_cast<int64_t>(fitted.warmup_num_steps), "warm-up step"), decay, counted(steps, "step"));
  }
  config.schedule = fitted;
}

void warn_of_long_warmup(const RunConfig& config, std::vector<std::string>& warnings) {
  std::visit(
      [&](const auto& schedule) {
        if constexpr (requires { schedule.total_num_steps; }) {
          if (schedule.total_num_steps <= schedule.warmup_num_steps) {
            warnings.push_back(
                fmt::format("the schedule has {} warm-up steps but only {} in total, so the learning rate never {}.",
                            schedule.warmup_num_steps, counted(schedule.total_num_steps, "step"),
                            schedule.total_num_steps < schedule.warmup_num_steps ? "reaches its peak" : "decays"));
          }
        }
      },
      config.schedule.variant());
}

bool is_trainers(const parallel::LrSchedule& schedule) {
  return std::holds_alternative<parallel::TrainerLr>(schedule.variant());
}

// DeepSpeed's schedules and lr_at() treat 0 and 1 warm-up steps as 2.
void warn_of_no_warmup(const RunConfig& config, std::vector<std::string>& warnings) {
  const bool may_have_none =
      is_trainers(config.schedule) || std::holds_alternative<parallel::ConstantLr>(config.schedule.variant());
  if (may_have_none || config.schedule.warmup_num_steps() >= 1) return;
  const Origin& origin = config.origins.warmup;
  warnings.push_back(
      fmt::format("{}{} 0: this run warms up for two steps, the minimum of DeepSpeed's schedules; for no warm-up, use "
                  "--lr_scheduler_type linear, cosine or constant.",
                  origin.kind == Origin::Kind::kFlag ? "--" : "", origin.name));
}

void fit_warmup(RunConfig& config, int64_t all_steps) {
  auto steps = static_cast<int64_t>(std::ceil(static_cast<double>(all_steps) * *config.warmup_ratio));
  if (!is_trainers(config.schedule)) steps = std::max<int64_t>(1, steps);
  const Origin& origin = config.origins.warmup;
  if (origin.kind == Origin::Kind::kFile && config.schedule.warmup_num_steps() != steps) {
    throw_user_error(
        "the command line and {} conflict: --warmup_ratio {} of {} is {}, but {} is {}; change or remove one of "
        "the two, or let flags override the file with --deepspeed_config_yields true.",
        config.ds_config_path, *config.warmup_ratio, counted(all_steps, "step"), steps, origin.name,
        config.schedule.warmup_num_steps());
  }
  config.schedule = config.schedule.with_warmup_num_steps(steps);
}

}  // namespace

void resolve_schedule(const CommandLine& line, const DsConfig& file, ConfigMerge& merge, RunConfig& config,
                      std::vector<std::string>& warnings) {
  config.origins.schedule_end = config.origins.of("max_steps");
  if (!line.lr_scheduler_type.empty()) {
    if (file.scheduler.type != SchedulerType::kNone) {
      merge.flag_holds("lr_scheduler_type", line.lr_scheduler_type, "scheduler.type", name_of(file.scheduler.type));
    }
    use_trainer_schedule(line, config);
  } else if (!file.given()) {
    use_own_schedule(line, config);
  } else if (file.scheduler.type == SchedulerType::kNone) {
    use_constant_rate(line, merge, config);
  } else {
    use_section(line, file, merge, config, warnings);
  }
  if (!config.warmup_ratio) warn_of_no_warmup(config, warnings);
}

void fit_schedule(RunConfig& config, int64_t steps, double epoch, std::vector<std::string>& warnings) {
  config.schedule = config.schedule.with_clock(std::nullopt);
  if (config.warmup_ratio) fit_warmup(config, steps);
  if (config.schedule_ends_at_max_steps) {
    config.schedule = config.schedule.with_total_num_steps(steps);
    config.origins.schedule_end = config.origins.of("max_steps");
  }
  fit_decay(config, steps, epoch);
  warn_of_long_warmup(config, warnings);
}

}  // namespace mpzero
