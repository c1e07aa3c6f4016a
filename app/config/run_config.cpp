#include "app/config/run_config.hpp"

#include <algorithm>
#include <filesystem>
#include <limits>
#include <sstream>

#include "app/config/config_merge.hpp"
#include "app/config/deepspeed_format.hpp"
#include "app/config/model_changes.hpp"
#include "app/config/own_values.hpp"
#include "app/config/prepare_data_command.hpp"
#include "app/config/run_length.hpp"
#include "app/config/schedule_settings.hpp"
#include "base/error.hpp"
#include "base/saturating_product.hpp"

namespace mpzero {
namespace {

using io::DsConfig;
using io::Setting;

struct BatchSizes {
  std::optional<int64_t> total;
  std::optional<int64_t> micro;
  std::optional<int64_t> accumulation;
};

BatchSizes given_batch_sizes(const CommandLine& line, const DsConfig& file, ConfigMerge& merge, Origins& origins) {
  return {merge.given("train_batch_size", line.train_batch_size, "train_batch_size", file.train_batch_size,
                      origins.train_batch),
          merge.given("train_micro_batch_size_per_gpu", line.train_micro_batch_size_per_gpu,
                      "train_micro_batch_size_per_gpu", file.train_micro_batch_size_per_gpu, origins.micro_batch),
          merge.given("gradient_accumulation_steps", line.gradient_accumulation_steps, "gradient_accumulation_steps",
                      file.gradient_accumulation_steps, origins.accumulation)};
}

// DeepSpeed's table: two of the three give the third; the total or the micro-batch alone is enough.
void complete_batch(BatchSizes sizes, const DsConfig& file, int world_size, RunConfig& config) {
  auto& [total, micro, accumulation] = sizes;
  Origins& origins = config.origins;
  const auto computed = [](const char* from) { return Origin{Origin::Kind::kComputed, from}; };
  const std::string where = file.given() ? file.path : std::string("the command line");
  if (!total && !micro) {
    if (file.given() && !file.train_micro_batch_size_per_gpu.is_auto() && !file.train_batch_size.is_auto()) {
      throw_user_error("{} gives neither train_micro_batch_size_per_gpu nor train_batch_size; add one of them.", where);
    }
    micro = 1;
    if (file.given()) {
      const bool micro_is_auto = file.train_micro_batch_size_per_gpu.is_auto();
      origins.micro_batch.name =
          std::string(micro_is_auto ? "train_micro_batch_size_per_gpu" : "train_batch_size") + " is \"auto\"";
    }
  }
  if (total && micro) {
    if (!accumulation) origins.accumulation = computed("the global batch, the micro-batch and the ranks");
    accumulation = accumulation.value_or(*total / *micro / world_size);
  } else {
    accumulation = accumulation.value_or(1);
    if (total) {
      micro = *total / world_size / *accumulation;
      origins.micro_batch = computed("the global batch, the accumulation and the ranks");
    }
  }
  const int64_t product = saturating_product(*micro, *accumulation, world_size);
  if (product == std::numeric_limits<int64_t>::max())
    throw_user_error("{}: the batch is too large; make it smaller.", where);
  if (!total) origins.train_batch = computed("micro-batch x accumulation x ranks");
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

// The words between commas. `remark` goes on with the sentence about an empty one.
std::vector<std::string> parse_names(const char* flag, const std::string& value, const char* remark) {
  std::vector<std::string> names;
  std::istringstream words(value + ",");
  for (std::string word; std::getline(words, word, ',');) {
    word.erase(0, word.find_first_not_of(' '));
    word.erase(word.find_last_not_of(' ') + 1);
    if (word.empty()) throw_user_error("--{} {} has an empty name{}.", flag, value, remark);
    names.push_back(word);
  }
  return names;
}

std::vector<std::string> parse_allow_changed(const std::string& value) {
  const std::vector<std::string> keys = parse_names("allow_changed", value, "; write it as rope_theta,rms_norm_eps");
  for (const std::string& key : keys) {
    if (std::find(kChangedOnPurpose.begin(), kChangedOnPurpose.end(), key) != kChangedOnPurpose.end()) continue;
    throw_user_error(
        "--allow_changed {}: the flag is for {}; other keys may change without it, or not at all (docs/runs.md).", key,
        fmt::join(kChangedOnPurpose, ", "));
  }
  return keys;
}

void resolve_optimizer(const CommandLine& line, const DsConfig& file, ConfigMerge& merge, RunConfig& config) {
  const io::OptimizerSection& section = file.optimizer;
  const OptimizerConfig own;
  OptimizerConfig& optimizer = config.optimizer;
  Origins& origins = config.origins;
  origins.optimizer.name = merge.default_reason("optimizer", /*is_auto=*/false);
  if (section.present) origins.optimizer = {Origin::Kind::kFile, "optimizer.type"};
  const auto resolve = [&](const char* flag, const std::optional<double>& from_flag, const char* key,
                           const Setting<double>& from_file, double own_default, Origin& origin) {
    return merge.value(flag, from_flag, key, from_file, section.present, own_default, origin);
  };
  const auto beta = [&](double value) {
    Setting<double> setting(value);
    setting.source = section.betas.source;
    return setting;
  };
  optimizer.lr = resolve("learning_rate", line.learning_rate, "optimizer.params.lr", section.lr, own.lr, origins.lr);
  optimizer.beta1 = resolve("beta1", line.beta1, "optimizer.params.betas[0]", beta(section.betas.value.first),
                            own.beta1, origins.beta1);
  optimizer.beta2 = resolve("beta2", line.beta2, "optimizer.params.betas[1]", beta(section.betas.value.second),
                            own.beta2, origins.beta2);
  optimizer.eps = resolve("adam_epsilon", line.adam_epsilon, "optimizer.params.eps", section.eps, own.eps, origins.eps);
  optimizer.weight_decay = resolve("weight_decay", line.weight_decay, "optimizer.params.weight_decay",
                                   section.weight_decay, own.weight_decay, origins.weight_decay);
  optimizer.bias_correction = section.bias_correction.value;
  if (line.no_decay) {
    optimizer.no_decay =
        parse_names("no_decay", *line.no_decay, ", which would be part of every other; write it as norm,bias");
  }
}

// The types of weights, of gradients under way and accumulated, and of AdamW's moments.
void resolve_types(const CommandLine& line, const DsConfig& file, ConfigMerge& merge, RunConfig& config) {
  Origins& origins = config.origins;
  const bool bf16 =
      merge.value("bf16", line.bf16, "bf16.enabled", file.bf16_enabled, file.given(), true, origins.dtype);
  config.dtype = bf16 ? "bf16" : "fp32";
  config.communication_dtype = file.communication_data_type.given() ? file.communication_data_type.value : config.dtype;
  origins.communication_dtype = {Origin::Kind::kComputed, "the weights' type"};
  if (file.communication_data_type.given()) {
    origins.communication_dtype = {Origin::Kind::kFile, "communication_data_type"};
  }
  config.accumulation_dtype = file.grad_accum_dtype.value;
  if (file.grad_accum_dtype.given()) {
    origins.accumulation_dtype = {Origin::Kind::kFile, "data_types.grad_accum_dtype"};
  } else if (config.accumulation_dtype == "bf16") {
    origins.accumulation_dtype = {Origin::Kind::kFile, "bf16.bf16_master_weights_and_grads"};
  }
  config.moment_dtype = file.bf16_optimizer_states.value ? "bf16" : "fp32";
  if (file.bf16_optimizer_states.given()) {
    origins.moment_dtype = {Origin::Kind::kFile, "bf16.bf16_optimizer_states"};
  }
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

void check_model_name(const std::string& name) {
  if (!name.starts_with('.') && name.find('/') == std::string::npos) return;
  throw_user_error(
      "--model_type {}: checkpoints are named after it, so it must hold no / and not begin with a dot; give a plain "
      "name.",
      name);
}

Recomputation recomputation(const CommandLine& line) {
  if (line.gradient_checkpointing) return *line.gradient_checkpointing ? Recomputation::kFull : Recomputation::kNone;
  const std::string name = line.recompute.value_or("auto");
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
  config.recompute = recomputation(line);
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
  config.saves_each_epoch = line.save_strategy == "epoch";
  if (line.save_strategy == "no") {
    config.checkpoint_freq = 0;
    config.save_final = false;
  }
  config.keep_last = line.keep_last.value_or(config.keep_last);
  config.async_save = line.async_save.value_or(config.async_save);
  config.deepspeed_format = line.checkpoint_format == "deepspeed";
  if (line.allow_changed) config.allow_changed = parse_allow_changed(*line.allow_changed);
  config.resume_strict = line.resume_strict.value_or(config.resume_strict);
  config.overwrite = line.overwrite.value_or(config.overwrite);
  config.save_final = line.save_final.value_or(config.save_final);
  config.resume_from_checkpoint = line.resume_from_checkpoint.value_or(config.overwrite ? "none" : "");
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
  config.ds_config_path = file.path;
  resolve_length(line, config);
  config.logging_freq =
      line.logging_freq.value_or(file.steps_per_print.given() ? file.steps_per_print.value : config.logging_freq);

  warnings.insert(warnings.end(), file.warnings.begin(), file.warnings.end());
  ConfigMerge merge(line, file);
  resolve_optimizer(line, file, merge, config);
  config.gradient_clipping = merge.value("grad_clip", line.grad_clip, "gradient_clipping", file.gradient_clipping,
                                         file.given(), 1.0, config.origins.gradient_clipping);
  resolve_types(line, file, merge, config);
  resolve_zero(file, model.hidden_size, config.zero, warnings);
  resolve_schedule(line, file, merge, config, warnings);
  const BatchSizes batch_sizes = given_batch_sizes(line, file, merge, config.origins);
  merge.finish();
  complete_batch(batch_sizes, file, world_size, config);
  if (!config.counts_epochs()) {
    fit_schedule(config, warnings);
    check_profile_steps(config);
  }
  warn_of_own_values(file, config, warnings);
  config.ds_config_json = file.json;
  config.sub_group_size = file.zero.sub_group_size.value;
  if (config.deepspeed_format) check_deepspeed_format(config, warnings);
  return config;
}

}  // namespace mpzero
