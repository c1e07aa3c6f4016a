#include "app/run_config.hpp"

#include <algorithm>
#include <filesystem>
#include <limits>

#include "app/config_merge.hpp"
#include "app/deepspeed_format.hpp"
#include "app/prepare_data_command.hpp"
#include "base/error.hpp"
#include "base/saturating_product.hpp"

namespace mpzero {
namespace {

using io::DsConfig;
using io::SchedulerType;
using io::Setting;

constexpr int64_t kDefaultWarmupSteps = 100;

struct BatchSizes {
  std::optional<int64_t> total;
  std::optional<int64_t> micro;
  std::optional<int64_t> accumulation;
};

BatchSizes given_batch_sizes(const CommandLine& line, const DsConfig& file, ConfigMerge& merge) {
  return {merge.given("train_batch_size", line.train_batch_size, "train_batch_size", file.train_batch_size),
          merge.given("train_micro_batch_size_per_gpu", line.train_micro_batch_size_per_gpu,
                      "train_micro_batch_size_per_gpu", file.train_micro_batch_size_per_gpu),
          merge.given("gradient_accumulation_steps", line.gradient_accumulation_steps, "gradient_accumulation_steps",
                      file.gradient_accumulation_steps)};
}

// DeepSpeed's table: two of the three give the third; the total or the micro-batch alone is enough.
void complete_batch(BatchSizes sizes, const DsConfig& file, int world_size, RunConfig& config) {
  auto& [total, micro, accumulation] = sizes;
  const std::string where = file.given() ? file.path : std::string("the command line");
  if (!total && !micro) {
    if (file.given() && !file.train_micro_batch_size_per_gpu.is_auto() && !file.train_batch_size.is_auto()) {
      throw_user_error("{} gives neither train_micro_batch_size_per_gpu nor train_batch_size; add one of them.", where);
    }
    micro = 1;
  }
  if (total && micro) {
    accumulation = accumulation.value_or(*total / *micro / world_size);
  } else {
    accumulation = accumulation.value_or(1);
    if (total) micro = *total / world_size / *accumulation;
  }
  const int64_t product = saturating_product(*micro, *accumulation, world_size);
  if (product == std::numeric_limits<int64_t>::max())
    throw_user_error("{}: the batch is too large; make it smaller.", where);
  total = total.value_or(product);
  if (*micro < 1 || *accumulation < 1 || *total != product) {
    throw_user_error(
        "{}: train_batch_size {} is not train_micro_batch_size_per_gpu {} x gradient_accumulation_steps {} x {} ranks; "
        "change one of them or the number of ranks.",
        where, *total, *micro, *accumulation, world_size);
  }
  config.train_batch_size = *total;
  config.micro_batch_size = *micro;
  config.gradient_accumulation_steps = *accumulation;
}

void resolve_optimizer(const CommandLine& line, const DsConfig& file, ConfigMerge& merge, OptimizerConfig& optimizer) {
  const io::OptimizerSection& section = file.optimizer;
  const OptimizerConfig own;
  optimizer.lr =
      merge.value("learning_rate", line.learning_rate, "optimizer.params.lr", section.lr, section.present, own.lr);
  const auto beta = [&](double value) {
    Setting<double> setting(value);
    setting.source = section.betas.source;
    return setting;
  };
  optimizer.beta1 = merge.value("beta1", line.beta1, "optimizer.params.betas[0]", beta(section.betas.value.first),
                                section.present, own.beta1);
  optimizer.beta2 = merge.value("beta2", line.beta2, "optimizer.params.betas[1]", beta(section.betas.value.second),
                                section.present, own.beta2);
  optimizer.eps = section.eps.value;
  optimizer.weight_decay = merge.value("weight_decay", line.weight_decay, "optimizer.params.weight_decay",
                                       section.weight_decay, section.present, own.weight_decay);
  optimizer.bias_correction = section.bias_correction.value;
}

std::string resolve_dtype(const CommandLine& line, const DsConfig& file, ConfigMerge& merge) {
  return merge.value("bf16", line.bf16, "bf16.enabled", file.bf16_enabled, file.given(), true) ? "bf16" : "fp32";
}

// HF Trainer's sizes for "auto", from the width of the model.
void fill_auto_sizes(const io::ZeroSection& section, int64_t hidden_size, ZeroConfig& zero) {
  const int64_t square = hidden_size * hidden_size;
  if (section.reduce_bucket_size.is_auto()) zero.reduce_bucket_size = square;
  if (section.prefetch_bucket_size.is_auto())
    zero.gather_limits.prefetch_bucket_size = saturating_product(square, 9) / 10;
  if (section.param_persistence_threshold.is_auto()) zero.gather_limits.param_persistence_threshold = 10 * hidden_size;
}

void resolve_zero(const DsConfig& file, int64_t hidden_size, ZeroConfig& zero, std::vector<std::string>& warnings) {
  if (!file.given()) {
    zero.stage = 2;
    zero.offload_optimizer = true;
    return;
  }
  const io::ZeroSection& section = file.zero;
  zero.stage = static_cast<int>(section.stage.value);
  zero.offload_optimizer = section.offload_optimizer.device.value == io::OffloadDevice::kCpu;
  const Setting<double>& ratio = section.offload_optimizer.ratio;
  zero.offload_optimizer_ratio = ratio.value;
  zero.offload_ratio_automatic = zero.offload_optimizer && ratio.is_auto();
  if (zero.offload_optimizer && zero.stage != 3 && (ratio.is_auto() || ratio.value < 1)) {
    warnings.push_back(fmt::format(
        "{}: zero_optimization.offload_optimizer.ratio works at stage 3 only in DeepSpeed; mpzero divides the updates "
        "at stage {} too.",
        file.path, zero.stage));
  }
  zero.offload_param = section.offload_param.device.value == io::OffloadDevice::kCpu && zero.stage == 3;
  if (section.offload_param.device.value == io::OffloadDevice::kCpu && zero.stage != 3) {
    warnings.push_back(fmt::format(
        "{}: mpzero does not act on zero_optimization.offload_param: parameters stay on the device at stage "
        "{}, only stage 3 offloads them.",
        file.path, zero.stage));
  }
  zero.pin_memory = section.offload_optimizer.pin_memory.value && section.offload_param.pin_memory.value;
  // Overlapping costs buffers, not correctness, so only a file that says no goes without.
  zero.overlap_comm = !section.overlap_comm.given() || section.overlap_comm.value;
  if (section.reduce_bucket_size.given()) zero.reduce_bucket_size = section.reduce_bucket_size.value;
  zero.gather_limits = {.prefetch_bucket_size = section.prefetch_bucket_size.value,
                        .param_persistence_threshold = section.param_persistence_threshold.value,
                        .max_live_parameters = section.max_live_parameters.value,
                        .max_reuse_distance = section.max_reuse_distance.value};
  zero.gather_limits_automatic = !section.max_live_parameters.given() && !section.max_reuse_distance.given();
  fill_auto_sizes(section, hidden_size, zero);
}

// The schedule with the total_num_steps of the file, or, where there is none, max_steps.
void resolve_schedule(const CommandLine& line, const DsConfig& file, ConfigMerge& merge, RunConfig& config,
                      std::vector<std::string>& warnings) {
  const io::SchedulerSection& section = file.scheduler;
  const double peak = config.optimizer.lr;
  if (!file.given()) {
    config.schedule_ends_at_max_steps = true;
    config.schedule = parallel::WarmupCosineLr{.peak_lr = peak,
                                               .warmup_min_ratio = 0.0,
                                               .cos_min_ratio = 0.0,
                                               .warmup_num_steps = line.warmup_steps.value_or(kDefaultWarmupSteps),
                                               .total_num_steps = config.max_steps,
                                               .warmup_type = parallel::WarmupType::kLog};
    return;
  }
  if (section.type == SchedulerType::kNone) {
    if (line.warmup_steps) merge.disagree("warmup_steps", *line.warmup_steps, "scheduler", "is missing");
    config.schedule = parallel::ConstantLr{peak};
    return;
  }
  const int64_t warmup =
      merge.value("warmup_steps", line.warmup_steps, "scheduler.params.warmup_num_steps", section.warmup_num_steps,
                  /*section_present=*/true, kDefaultWarmupSteps);
  const auto type = section.warmup_type.value == "linear" ? parallel::WarmupType::kLinear : parallel::WarmupType::kLog;
  const bool has_end = section.type != SchedulerType::kWarmupLR;
  config.schedule_ends_at_max_steps = has_end && !section.total_num_steps.given();
  const int64_t total = section.total_num_steps.given() ? section.total_num_steps.value : config.max_steps;
  if (has_end && section.total_num_steps.given() && !line.epochs && total != config.max_steps) {
    warnings.push_back(
        fmt::format("{}: the schedule ends at scheduler.params.total_num_steps {}, the run at --max_steps {}.",
                    file.path, total, config.max_steps));
  }

  if (section.type == SchedulerType::kWarmupCosineLR) {
    config.schedule = parallel::WarmupCosineLr{
        peak, section.warmup_min_ratio.value, section.cos_min_ratio.value, warmup, total, type};
    return;
  }
  double max_lr = peak;
  if (section.warmup_max_lr.given()) {
    max_lr = section.warmup_max_lr.value;
    if (line.learning_rate && *line.learning_rate != max_lr) {
      merge.disagree("learning_rate", *line.learning_rate, "scheduler.params.warmup_max_lr", max_lr);
    }
  } else if (section.warmup_max_lr.missing() && section.type == SchedulerType::kWarmupDecayLR) {
    max_lr = section.warmup_max_lr.value;
    if (max_lr != peak) {
      warnings.push_back(
          fmt::format("{}: scheduler.params.warmup_max_lr is missing, so that the learning rate rises to DeepSpeed's "
                      "default {} and not to the optimizer's {}.",
                      file.path, max_lr, peak));
    }
  }
  const double min_lr = section.warmup_min_lr.value;
  if (has_end) {
    config.schedule = parallel::WarmupDecayLr{min_lr, max_lr, warmup, total, type};
  } else {
    config.schedule = parallel::WarmupLr{min_lr, max_lr, warmup, type};
  }
}

void warn_of_long_warmup(const RunConfig& config, std::vector<std::string>& warnings) {
  std::visit(
      [&](const auto& schedule) {
        if constexpr (requires { schedule.total_num_steps; }) {
          if (schedule.total_num_steps < schedule.warmup_num_steps) {
            warnings.push_back(
                fmt::format("the schedule's {} warm-up steps are more than its {} steps in all, so that the "
                            "learning rate never reaches its peak.",
                            schedule.warmup_num_steps, schedule.total_num_steps));
          }
        }
      },
      config.schedule.variant());
}

void check_model_name(const std::string& name) {
  if (!name.starts_with('.') && name.find('/') == std::string::npos) return;
  throw_user_error(
      "--model_type {}: checkpoints are named after it, so it must hold no / and not begin with a dot; give a plain "
      "name.",
      name);
}

void check_profile_steps(const RunConfig& config) {
  if (!config.profile_steps || config.profile_steps->last <= config.max_steps) return;
  throw_user_error("--profile_steps {}-{} goes beyond the run's last step, {}; name earlier steps or train longer.",
                   config.profile_steps->first, config.profile_steps->last, config.max_steps);
}

Recomputation recomputation(const std::string& name) {
  if (name == "none") return Recomputation::kNone;
  if (name == "selective") return Recomputation::kSelective;
  return name == "full" ? Recomputation::kFull : Recomputation::kAuto;
}

void take_flags(const CommandLine& line, RunConfig& config) {
  config.model_type = model_name(line);
  check_model_name(config.model_type);
  config.model_config = line.model_config.value_or("");
  config.init_from = line.init_from.value_or("");
  config.model_overrides = line.model_overrides;
  config.deterministic = line.deterministic.value_or(false);
  config.recompute = recomputation(line.recompute.value_or("auto"));
  config.train_data = line.train_data.value_or("");
  config.validation_data = line.validation_data.value_or("");
  config.seq_length = line.seq_length.value_or(config.seq_length);
  config.shuffle = line.shuffle.value_or(config.shuffle);
  config.seed = line.seed.value_or(config.seed);
  config.validation_freq = line.validation_freq.value_or(config.validation_freq);
  config.validation_batches = line.validation_batches.value_or(config.validation_batches);
  config.metrics_file = line.metrics_file.value_or("");
  config.checkpoint_dir = line.checkpoint_dir.value_or(config.checkpoint_dir);
  config.checkpoint_freq = line.checkpoint_freq.value_or(config.checkpoint_freq);
  config.keep_last = line.keep_last.value_or(config.keep_last);
  config.async_save = line.async_save.value_or(config.async_save);
  config.deepspeed_format = line.checkpoint_format == "deepspeed";
  config.resume_strict = line.resume_strict.value_or(config.resume_strict);
  config.resume_from_checkpoint = line.resume_from_checkpoint.value_or("");
  config.device = line.device.value_or(config.device);
  config.network = line.network.value_or(config.network);
  config.grace_period = line.grace_period.value_or(config.grace_period);
  config.stuck_after = line.stuck_after.value_or(config.stuck_after);
  config.profile_steps = line.profile_steps;
  config.profile_all_ranks = line.profile_ranks == "all";
  config.profile_dir = line.profile_dir.value_or("");
}

void check_flags(const CommandLine& line, std::vector<std::string>& warnings) {
  if (!line.train_data) {
    throw_user_error("--train_data is missing; make a token file with {} and name it.",
                     prepare_data_command(line, "data/train.h5"));
  }
  if (!line.profile_steps && (line.profile_ranks || line.profile_dir)) {
    warnings.push_back(fmt::format("--{} has no effect: --profile_steps is missing.",
                                   line.profile_ranks ? "profile_ranks" : "profile_dir"));
  }
  const int64_t validation_freq = line.validation_freq.value_or(0);
  if (!line.validation_data && validation_freq > 0) {
    warnings.push_back(
        fmt::format("--validation_freq {} has no effect: --validation_data is missing.", validation_freq));
  }
}

}  // namespace

std::string model_name(const CommandLine& line) {
  if (line.model_type) return *line.model_type;
  if (!line.model_config && !line.init_from) return RunConfig{}.model_type;
  const std::filesystem::path config = line.model_config ? std::filesystem::path(*line.model_config)
                                                         : std::filesystem::path(*line.init_from) / "config.json";
  const auto path = std::filesystem::absolute(config).lexically_normal();
  const auto folder = path.parent_path().filename();
  return path.filename() == "config.json" && !folder.empty() ? folder.string() : path.stem().string();
}

RunConfig resolve(const CommandLine& line, const io::DsConfig& file, int world_size, const ModelDims& model,
                  std::vector<std::string>& warnings) {
  check_flags(line, warnings);
  RunConfig config;
  take_flags(line, config);
  config.epochs = line.epochs;
  if (line.epochs) config.max_steps = std::numeric_limits<int64_t>::max();
  config.max_steps = line.max_steps.value_or(config.max_steps);
  config.logging_freq =
      line.logging_freq.value_or(file.steps_per_print.given() ? file.steps_per_print.value : config.logging_freq);

  warnings.insert(warnings.end(), file.warnings.begin(), file.warnings.end());
  ConfigMerge merge(file);
  resolve_optimizer(line, file, merge, config.optimizer);
  config.gradient_clipping =
      merge.value("grad_clip", line.grad_clip, "gradient_clipping", file.gradient_clipping, file.given(), 1.0);
  config.dtype = resolve_dtype(line, file, merge);
  config.communication_dtype = file.communication_data_type.given() ? file.communication_data_type.value : config.dtype;
  config.accumulation_dtype = file.grad_accum_dtype.value;
  config.moment_dtype = file.bf16_optimizer_states.value ? "bf16" : "fp32";
  resolve_zero(file, model.hidden_size, config.zero, warnings);
  resolve_schedule(line, file, merge, config, warnings);
  const BatchSizes batch_sizes = given_batch_sizes(line, file, merge);
  merge.finish();
  complete_batch(batch_sizes, file, world_size, config);
  if (!config.epochs) {
    warn_of_long_warmup(config, warnings);
    check_profile_steps(config);
  }
  config.ds_config_json = file.json;
  config.sub_group_size = file.zero.sub_group_size.value;
  if (config.deepspeed_format) check_deepspeed_format(config, warnings);
  return config;
}

void apply_epochs(RunConfig& config, int64_t num_windows, std::vector<std::string>& warnings) {
  if (!config.epochs) return;
  const int64_t steps = saturating_product(num_windows, *config.epochs) / config.train_batch_size;
  if (steps < 1) {
    throw_user_error(
        "--epochs {} of {} sequences do not fill one optimizer step of {} (train_batch_size); give more --epochs or "
        "use a "
        "smaller batch.",
        *config.epochs, num_windows, config.train_batch_size);
  }
  if (config.max_steps != std::numeric_limits<int64_t>::max()) {
    const bool epochs_win = steps < config.max_steps;
    warnings.push_back(fmt::format("--epochs {} is {} steps and --max_steps is {}: the run ends at the smaller, {}.",
                                   *config.epochs, steps, config.max_steps, epochs_win ? "--epochs" : "--max_steps"));
  }
  config.max_steps = std::min(config.max_steps, steps);
  if (config.schedule_ends_at_max_steps) config.schedule = config.schedule.with_total_num_steps(config.max_steps);
  warn_of_long_warmup(config, warnings);
  check_profile_steps(config);
}

}  // namespace mpzero
