#include "app/config/run_config.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <limits>

#include "app/config/config_merge.hpp"
#include "app/config/deepspeed_format.hpp"
#include "app/config/model_changes.hpp"
#include "app/config/own_values.hpp"
#include "app/config/prepare_data_command.hpp"
#include "app/config/run_length.hpp"
#include "app/config/schedule_settings.hpp"
#include "app/flags/training_flags.hpp"
#include "app/flags/validation_data.hpp"
#include "base/error.hpp"
#include "base/saturating_product.hpp"
#include "base/words.hpp"
#include "io/checkpoint_dir/folder.hpp"
#include "io/hub/hub_cache.hpp"

namespace mpzero {
namespace {

using io::DsConfig;
using io::Setting;

constexpr const char* kTrainBatch = "train_batch_size";
constexpr const char* kMicroBatch = "train_micro_batch_size_per_gpu";
constexpr const char* kAccumulation = "gradient_accumulation_steps";
// Largest divisor to suggest for the global batch size.
constexpr int64_t kMostOfBatch = 1'000'000'000;

struct Batch {
  std::optional<int64_t> total, micro, accumulation;

  bool fits(int data_parallel_size) const {
    if (!total) return true;
    const int64_t product = saturating_product(micro.value_or(1), accumulation.value_or(1), data_parallel_size);
    return product > 0 && (micro && accumulation ? *total == product : *total % product == 0);
  }
};

// Returns `batch` without conflicting values of ds_config.json: drops first accumulation, then micro-batch size, then
// global batch size.
Batch without_conflicts(Batch batch, const Origins& origins, int data_parallel_size) {
  const auto drop = [&](const char* name, std::optional<int64_t>& size) {
    if (!batch.fits(data_parallel_size) && origins.of(name).kind == Origin::Kind::kFile) size.reset();
  };
  drop(kAccumulation, batch.accumulation);
  drop(kMicroBatch, batch.micro);
  drop(kTrainBatch, batch.total);
  return batch;
}

// Requires !batch.fits(data_parallel_size).
[[noreturn]] void refuse_batch(const Batch& batch, const RunConfig& config, int data_parallel_size) {
  bool any_flag = false, any_key = false;
  const auto show = [&](const char* name, const std::optional<int64_t>& size) {
    if (!size) return std::string();
    const Origin& origin = config.origins.of(name);
    const bool is_flag = origin.kind == Origin::Kind::kFlag;
    (is_flag ? any_flag : any_key) = true;
    return is_flag ? fmt::format("--{} {}", origin.name, *size) : fmt::format("{} {}", name, *size);
  };
  const std::string total = show(kTrainBatch, batch.total), micro = show(kMicroBatch, batch.micro),
                    accumulation = show(kAccumulation, batch.accumulation), ranks = counted(data_parallel_size, "rank");
  const std::string where = !any_key   ? "the command line"
                            : any_flag ? "the command line and " + config.ds_config_path
                                       : config.ds_config_path;
  const Batch yielded = without_conflicts(batch, config.origins, data_parallel_size);
  const bool would_fit = any_flag && (yielded.total || yielded.micro) && yielded.fits(data_parallel_size);
  const char* const yields = would_fit ? ", or let flags override the file with --deepspeed_config_yields true" : "";
  if (batch.micro && batch.accumulation) {
    throw BatchRefused(fmt::format("{}: {} is not equal to {} x {} x {}; change one of these values{}.", where, total,
                                   micro, accumulation, ranks, yields));
  }
  const int64_t divisor =
      saturating_product(batch.micro.value_or(1), batch.accumulation.value_or(1), data_parallel_size);
  const bool alone = !batch.micro && !batch.accumulation;
  throw BatchRefused(fmt::format(
      "{}: {} is not a multiple of {}{}{}; {}change {}the number of ranks{}.", where, total, micro + accumulation,
      alone ? "" : " x ", ranks, divisor <= kMostOfBatch ? fmt::format("make it a multiple of {}, or ", divisor) : "",
      alone ? "" : fmt::format("{} or ", batch.micro ? kMicroBatch : kAccumulation), yields));
}

// As in DeepSpeed, two of the three values determine the third, and the global or micro-batch size alone is sufficient.
void complete_batch(const DsConfig& file, int data_parallel_size, RunConfig& config) {
  Origins& origins = config.origins;
  const auto given = [&](const char* flag, int64_t size) {
    const Origin::Kind kind = origins.of(flag).kind;
    const bool is_given = kind == Origin::Kind::kFlag || kind == Origin::Kind::kFile;
    return is_given ? std::optional(size) : std::nullopt;
  };
  Batch batch{.total = given(kTrainBatch, config.train_batch_size),
              .micro = given(kMicroBatch, config.micro_batch_size),
              .accumulation = given(kAccumulation, config.gradient_accumulation_steps)};
  const Batch given_values = batch;
  if (config.deepspeed_config_yields) batch = without_conflicts(batch, origins, data_parallel_size);
  auto& [total, micro, accumulation] = batch;
  const Batch asked = batch;
  const auto computed = [](const char* from) { return Origin{Origin::Kind::kComputed, from}; };
  const std::string where = file.given() ? file.path : std::string("the command line");
  if (!total && !micro) {
    if (file.given() && !file.train_micro_batch_size_per_gpu.is_auto() && !file.train_batch_size.is_auto()) {
      throw_user_error("{} sets neither train_micro_batch_size_per_gpu nor train_batch_size; set one of them.", where);
    }
    micro = 1;
    if (file.given()) {
      const bool micro_is_auto = file.train_micro_batch_size_per_gpu.is_auto();
      origins.set(kMicroBatch, {.name = std::string(micro_is_auto ? kMicroBatch : kTrainBatch) + " is \"auto\""});
    }
  }
  if (total && micro) {
    if (!accumulation) origins.set(kAccumulation, computed("global batch, micro-batch and ranks"));
    accumulation = accumulation.value_or(*total / *micro / data_parallel_size);
  } else {
    if (!accumulation && given_values.accumulation.value_or(1) != 1) {
      origins.set(kAccumulation, computed("global batch, micro-batch and ranks"));
    }
    accumulation = accumulation.value_or(1);
    if (total) {
      micro = *total / data_parallel_size / *accumulation;
      origins.set(kMicroBatch, computed("global batch, accumulation and ranks"));
    }
  }
  const int64_t product = saturating_product(*micro, *accumulation, data_parallel_size);
  if (product == std::numeric_limits<int64_t>::max())
    throw_user_error("{}: the global batch size is too large; reduce it.", where);
  if (!total) origins.set(kTrainBatch, computed("micro-batch x accumulation x ranks"));
  total = total.value_or(product);
  if (!asked.fits(data_parallel_size)) refuse_batch(asked, config, data_parallel_size);
  const auto note = [&](const char* name, const std::optional<int64_t>& before, const std::optional<int64_t>& now) {
    if (before && before != now) {
      config.replaced.push_back(fmt::format("{} {} is replaced by a computed value", name, *before));
    }
  };
  note(kAccumulation, given_values.accumulation, accumulation);
  note(kMicroBatch, given_values.micro, micro);
  note(kTrainBatch, given_values.total, total);
  config.train_batch_size = *total;
  config.micro_batch_size = *micro;
  config.gradient_accumulation_steps = *accumulation;
}

// Returns the largest micro-batch size up to `most` that divides `sequences`.
int64_t largest_micro_batch(int64_t sequences, int64_t most) {
  int64_t size = std::min(sequences, most);
  while (sequences % size != 0) --size;
  return size;
}

void check_allow_changed(const std::vector<std::string>& keys) {
  for (const std::string& key : keys) {
    if (std::find(kChangedOnPurpose.begin(), kChangedOnPurpose.end(), key) != kChangedOnPurpose.end()) continue;
    throw_user_error("--allow_changed {} is not supported; the supported keys are {} (docs/runs.md).", key,
                     fmt::join(kChangedOnPurpose, ", "));
  }
}

// Settings of the optimizer section that have no flag.
void resolve_optimizer(const DsConfig& file, const ConfigMerge& merge, RunConfig& config) {
  Origin& origin = config.origins.optimizer;
  origin.name = merge.default_reason("optimizer", /*is_auto=*/false);
  if (file.optimizer.present) origin = {Origin::Kind::kFile, "optimizer.type"};
  config.optimizer.bias_correction = file.optimizer.bias_correction.value;
}

// cpu_checkpointing is equivalent to --recompute host, and compatible with --recompute host_attention and
// --gradient_checkpointing true.
void resolve_recompute(const DsConfig& file, const CommandLine& line, ConfigMerge& merge, RunConfig& config) {
  constexpr const char* kKey = "activation_checkpointing.cpu_checkpointing";
  if (line.gradient_checkpointing && !line.gives("recompute")) {
    config.origins.set("recompute", {Origin::Kind::kFlag, line.name_of("gradient_checkpointing")});
  }
  if (!file.cpu_checkpointing.given()) return;
  const bool on_host = file.cpu_checkpointing.value, gives = line.gives("recompute");
  const bool by_trainers = !gives && line.gradient_checkpointing.has_value();
  const bool with_attention = line.recompute == Recomputation::kHostAttention;
  const bool offloads = offloads_activations(line.recompute);
  const bool contradicts = !on_host ? offloads : by_trainers ? !*line.gradient_checkpointing : gives && !offloads;
  const char* const flag = by_trainers ? "gradient_checkpointing" : "recompute";
  if (contradicts && merge.flag_holds(flag, flag_named(flag).show(line), kKey, on_host)) return;
  if (!on_host || with_attention) return;
  config.recompute = Recomputation::kHost;
  config.origins.set("recompute", {Origin::Kind::kFile, kKey});
}

// Resolves the dtypes of communicated gradients, accumulated gradients and AdamW's moments.
void resolve_types(const DsConfig& file, RunConfig& config) {
  Origins& origins = config.origins;
  config.communication_dtype = file.communication_data_type.given() ? file.communication_data_type.value : config.dtype;
  origins.communication_dtype = {Origin::Kind::kComputed, "the weights' dtype"};
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

model::KeptCasts kept_casts(const io::Fp8Section& section, const RunConfig& config) {
  // Stage 3 gathers parameters again for each use.
  if (config.zero.stage == 3) return model::KeptCasts::kNone;
  // Free GPU memory is reserved for optimizer states.
  if (!section.cache_weights.given() && config.zero.offload_ratio_automatic) return model::KeptCasts::kNone;
  if (!section.cache_weights.given()) return model::KeptCasts::kAsToldLater;
  return section.cache_weights.value ? model::KeptCasts::kAll : model::KeptCasts::kNone;
}

// Selects the FP8 matmuls and the recipe. Must be called after resolve_zero().
void resolve_fp8(const DsConfig& file, const CommandLine& line, ConfigMerge& merge, RunConfig& config,
                 std::vector<std::string>& warnings) {
  const io::Fp8Section& section = file.fp8;
  Origin origin = config.origins.of("fp8");
  const std::optional<std::string> from_flag = line.gives("fp8") ? std::optional(line.fp8) : std::nullopt;
  Setting<std::string> recipe;
  recipe.value = !section.present || !section.enabled.value ? "none" : section.recipe.value;
  // If the section sets neither `enabled` nor `recipe`, any flag is valid. If it only enables FP8, the flag sets the
  // recipe.
  const bool is_off = recipe.value == "none";
  if (section.recipe.given() || (section.enabled.given() && (is_off || from_flag.value_or("none") == "none"))) {
    recipe.source = io::SettingSource::kGiven;
  }
  config.fp8 = merge.given("fp8", from_flag, "fp8.recipe", recipe, origin).value_or(recipe.value);
  if (section.present && !from_flag) origin = {Origin::Kind::kFile, "fp8"};
  const auto add_origin = [&](const char* key, const auto& setting) {
    if (setting.given()) origin.name += fmt::format("{}fp8.{}", origin.name.empty() ? "" : ", ", key);
  };
  if (origin.kind == Origin::Kind::kFile) {
    origin.name.clear();
    add_origin("enabled", section.enabled);
    add_origin("recipe", section.recipe);
  }
  if (config.fp8 != "none") {
    add_origin("format", section.format);
    add_origin("fast_accumulation", section.fast_accumulation);
    add_origin("filter_fqns", section.filter_fqns);
  }
  if (origin.name.empty() && section.present) origin.name = "fp8";
  config.origins.set("fp8", origin);
  if (config.fp8 == "none") return;
  if (config.dtype != "bf16") {
    throw_user_error(
        "{}: FP8 requires bf16, but bf16.enabled (--bf16) is false; set bf16.enabled to true, or disable FP8.",
        origin.kind == Origin::Kind::kFlag ? "--fp8 " + config.fp8 : file.path + ": fp8.enabled");
  }
  if (section.cache_weights.given() && section.cache_weights.value && config.zero.stage == 3) {
    warnings.push_back(fmt::format(
        "{}: fp8.cache_weights has no effect at ZeRO stage 3, which gathers weights again for each use.", file.path));
  }
  using model::fp8::FastAccumulation;
  const std::string& fast = section.fast_accumulation.value;
  config.fp8_options = model::Fp8Options{
      .recipe = {.scaling = config.fp8 == "rowwise" ? model::fp8::Scaling::kRowwise : model::fp8::Scaling::kTensorwise,
                 .gradients = section.format.value == "e4m3" ? model::fp8::Format::kE4m3 : model::fp8::Format::kE5m2,
                 .fast_accumulation = fast == "all"    ? FastAccumulation::kAll
                                      : fast == "none" ? FastAccumulation::kNone
                                                       : FastAccumulation::kForward},
      .filter_fqns = section.filter_fqns.value,
      .kept_casts = kept_casts(section, config)};
}

// Must be called after complete_batch().
void check_fp8_batch(const RunConfig& config, std::vector<std::string>& warnings) {
  constexpr int64_t kMultiple = 16;  // required by Hopper's FP8 matmuls
  if (config.fp8 == "none" || config.micro_batch_tokens() % kMultiple == 0) return;
  warnings.push_back(fmt::format(
      "a micro-batch has {} tokens, but FP8 on GPUs requires a multiple of {}; falling back to bf16 matmuls "
      "of FP8-rounded operands, which are slower than plain bf16 matmuls; change --seq_length or the micro-batch size",
      config.micro_batch_tokens(), kMultiple));
}

// Computes "auto" sizes from hidden_size, as in the Hugging Face Trainer.
void fill_auto_sizes(const io::ZeroSection& section, int64_t hidden_size, ZeroConfig& zero) {
  const int64_t square = hidden_size * hidden_size;
  if (section.reduce_bucket_size.is_auto()) zero.limits.reduce_bucket_size = square;
  if (section.prefetch_bucket_size.is_auto())
    zero.limits.gather.prefetch_bucket_size = saturating_product(square, 9) / 10;
  if (section.param_persistence_threshold.is_auto()) zero.limits.gather.param_persistence_threshold = 10 * hidden_size;
}

void resolve_levels(const DsConfig& file, ZeroConfig& zero, std::vector<std::string>& warnings) {
  const Setting<int64_t>& hpz = file.zero.hpz_partition_size;
  const Setting<int64_t>& mics = file.zero.mics_shard_size;
  const auto take = [&](const Setting<int64_t>& setting, const char* key) {
    zero.ranks_per_node = setting.is_auto() ? kRanksOfHost : setting.value;
    zero.ranks_per_node_key = fmt::format("zero_optimization.{}", key);
  };
  if (!hpz.missing()) take(hpz, "zero_hpz_partition_size");
  if (hpz.given() && hpz.value == 1) zero.ranks_per_node = kOneLevel;
  if (mics.is_auto() || (mics.given() && mics.value > 0)) take(mics, "mics_shard_size");
  if (zero.stage > 0) return;
  if (zero.ranks_per_node.value_or(kOneLevel) != kOneLevel) {
    warnings.push_back(fmt::format("{}: {} has no effect at ZeRO stage 0.", file.path, zero.ranks_per_node_key));
  }
  zero.ranks_per_node = kOneLevel;
}

// Resolves quantization between shard groups. choose_layout() determines the number of groups later.
void resolve_compression(const DsConfig& file, const CommandLine& line, ZeroConfig& zero,
                         std::vector<std::string>& warnings) {
  if (file.zero.quantized_gradients.value) zero.quantized_gradient_bits = line.quantized_gradient_bits;
  zero.quantized_weights = file.zero.quantized_weights.value;
  if (line.gives("quantized_gradient_bits") && zero.quantized_gradient_bits == 0) {
    warnings.push_back(fmt::format(
        "--quantized_gradient_bits {} has no effect: {}zero_optimization.zero_quantized_gradients is not true.",
        line.quantized_gradient_bits, file.given() ? file.path + ": " : std::string()));
  }
  if (zero.quantized_weights && zero.offload_param) {
    throw_user_error(
        "{}: zero_optimization.zero_quantized_weights does not support offload_param; remove one of these keys.",
        file.path);
  }
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
    warnings.push_back(
        fmt::format("{}: mpzero also applies zero_optimization.offload_optimizer.ratio at stage {}; DeepSpeed applies "
                    "it only at stage 3.",
                    file.path, zero.stage));
  }
  const Setting<bool>& release = section.offload_optimizer.release_gradients;
  if (release.given()) zero.release_gradients = release.value;
  zero.offload_param = section.offload_param.device.value == io::OffloadDevice::kCpu && zero.stage == 3;
  if (section.offload_param.device.value == io::OffloadDevice::kCpu && zero.stage != 3) {
    warnings.push_back(
        fmt::format("{}: zero_optimization.offload_param has no effect at stage {}; only stage 3 offloads parameters.",
                    file.path, zero.stage));
  }
  zero.pin_memory = section.offload_optimizer.pin_memory.value && section.offload_param.pin_memory.value;
  // Overlap is enabled by default, because it costs only buffer memory.
  zero.overlap_comm = !section.overlap_comm.given() || section.overlap_comm.value;
  if (section.reduce_bucket_size.given()) zero.limits.reduce_bucket_size = section.reduce_bucket_size.value;
  zero.limits.gather = {.prefetch_bucket_size = section.prefetch_bucket_size.value,
                        .param_persistence_threshold = section.param_persistence_threshold.value,
                        .max_live_parameters = section.max_live_parameters.value,
                        .max_reuse_distance = section.max_reuse_distance.value};
  zero.gather_limits_automatic = !section.max_live_parameters.given() && !section.max_reuse_distance.given();
  fill_auto_sizes(section, hidden_size, zero);
  resolve_levels(file, zero, warnings);
}

void check_release(RunConfig& config, std::vector<std::string>& warnings) {
  if (!config.zero.release_gradients.value_or(false)) return;
  constexpr const char* kKey = "zero_optimization.offload_optimizer.release_gradients";
  if (!config.zero.offload_optimizer) {
    throw_user_error("{}: {} requires offload_optimizer.device \"cpu\"; set it or remove release_gradients",
                     config.ds_config_path, kKey);
  }
  if (config.gradient_accumulation_steps == 1) return;
  // The accumulation steps depend on the number of ranks, so do not refuse a restart on fewer ranks.
  if (config.origins.of(kAccumulation).kind == Origin::Kind::kComputed) {
    config.zero.release_gradients.reset();
    warnings.push_back(
        fmt::format("{}: {} has no effect with gradient_accumulation_steps {} (computed from train_batch_size); raise "
                    "train_micro_batch_size_per_gpu or remove release_gradients.",
                    config.ds_config_path, kKey, config.gradient_accumulation_steps));
    return;
  }
  throw_user_error("{}: {} requires gradient_accumulation_steps 1, not {}; raise {} or remove release_gradients",
                   config.ds_config_path, kKey, config.gradient_accumulation_steps, "train_micro_batch_size_per_gpu");
}

void check_model_name(const std::string& name) {
  if (!name.starts_with('.') && name.find('/') == std::string::npos) return;
  throw_user_error(
      "--model_type {} is not a valid prefix for checkpoint names; choose a name without / that does not start with a "
      "dot.",
      name);
}

// Resolves flags that set several members or override another flag.
void settle_flags(const CommandLine& line, RunConfig& config) {
  config.model_type = model_name(line);
  check_model_name(config.model_type);
  if (config.save_strategy == SaveStrategy::kNo) {
    config.checkpoint_freq = 0;
    config.save_final = false;
  }
  check_allow_changed(config.allow_changed);
  if (config.metrics_file == "none") {
    config.metrics_file.clear();
  } else if (config.metrics_file.empty()) {
    config.metrics_file = (std::filesystem::path(config.checkpoint_dir) / "metrics.jsonl").string();
  }
  if (config.resume_from_checkpoint.empty() && config.overwrite) config.resume_from_checkpoint = "none";
}

void check_flags(const CommandLine& line, std::vector<std::string>& warnings) {
  if (line.train_data.empty()) {
    throw_user_error("--train_data is missing; create a token file with {} and pass its path.",
                     prepare_data_command(line, "data/train.h5"));
  }
  const bool has_ranks = line.gives("profile_ranks");
  if (!line.profile_steps && (has_ranks || line.gives("profile_dir"))) {
    warnings.push_back(
        fmt::format("--{} has no effect without --profile_steps.", has_ranks ? "profile_ranks" : "profile_dir"));
  }
  for (const char* flag : {"metrics_address", "metrics_sd_dir"}) {
    if (line.metrics_port == 0 && line.gives(flag)) {
      warnings.push_back(fmt::format("--{} has no effect without --metrics_port.", flag));
    }
  }
  for (const char* flag : {"validation_freq", "validation_sequences", "validation_batches"}) {
    if (!line.validation_data.empty() || !line.gives(flag) || line.validation_freq == 0) continue;
    warnings.push_back(
        fmt::format("--{} {} has no effect without --validation_data.", flag, flag_named(flag).show(line)));
  }
}

}  // namespace

std::string yields_for(const RunConfig& config, const std::vector<std::string>& flags) {
  const auto is_in_file = [&](const std::string& flag) { return config.origins.of(flag).kind == Origin::Kind::kFile; };
  const bool conflicts = !config.deepspeed_config_yields && std::ranges::any_of(flags, is_in_file);
  return conflicts ? " --deepspeed_config_yields true" : "";
}

std::optional<std::string> flags_for_batch(const RunConfig& config, int64_t train_batch_size) {
  const int64_t micro = config.micro_batch_size, accumulation = config.gradient_accumulation_steps;
  const int64_t ranks = config.train_batch_size / (micro * accumulation);
  if (train_batch_size < 1 || train_batch_size % ranks != 0) return std::nullopt;
  const auto kind = [&](const char* flag) { return config.origins.of(flag).kind; };
  const bool micro_is_given = kind(kMicroBatch) == Origin::Kind::kFlag || kind(kMicroBatch) == Origin::Kind::kFile;
  const int64_t of_rank = train_batch_size / ranks, new_micro = largest_micro_batch(of_rank, micro);
  std::vector<std::string> flags, changed;
  const auto add = [&](const char* flag, int64_t value) {
    const std::string name = kind(flag) == Origin::Kind::kFlag ? config.origins.of(flag).name : flag;
    flags.push_back(fmt::format("--{} {}", name, value));
  };
  // Computed accumulation steps adapt to later changes in the number of ranks.
  const bool computes = kind(kAccumulation) != Origin::Kind::kFlag;
  if (computes) add(kTrainBatch, train_batch_size);
  if (of_rank / new_micro != accumulation) {
    if (!computes) add(kAccumulation, of_rank / new_micro);
    changed.emplace_back(kAccumulation);
  }
  if (new_micro != micro || (computes && !micro_is_given && of_rank != new_micro)) add(kMicroBatch, new_micro);
  if (new_micro != micro) changed.emplace_back(kMicroBatch);
  return fmt::format("{}{}", fmt::join(flags, " "), yields_for(config, changed));
}

std::string model_name(const CommandLine& line) {
  if (line.gives("model_type") || (line.model_config.empty() && line.init_from.empty())) return line.model_type;
  const std::filesystem::path config = !line.model_config.empty()
                                           ? std::filesystem::path(line.model_config)
                                           : std::filesystem::path(line.init_from) / "config.json";
  const auto path = std::filesystem::absolute(config).lexically_normal();
  const std::filesystem::path hub_name = io::hub_name_of(path.parent_path());
  const auto folder = (hub_name.empty() ? path.parent_path() : hub_name).filename();
  // The name of a checkpoint folder consists of model and step, and the folder contains no config.json.
  const std::string tag = folder.string();
  if (line.model_config.empty() && io::step_of_tag(tag, "") && !std::filesystem::exists(path)) {
    return tag.substr(0, tag.rfind('-'));
  }
  return path.filename() == "config.json" && !folder.empty() ? folder.string() : path.stem().string();
}

RunConfig resolve(const CommandLine& line, const io::DsConfig& file, int data_parallel_size, const ModelDims& model,
                  std::vector<std::string>& warnings) {
  check_flags(line, warnings);
  RunConfig config;
  static_cast<Settings&>(config) = line;
  settle_flags(line, config);
  config.ds_config_path = file.path;
  warnings.insert(warnings.end(), file.warnings.begin(), file.warnings.end());
  ConfigMerge merge(line, file);
  for (const FlagGroup& group : training_flags()) {
    for (const Flag& flag : group.flags) merge.merge(flag, config, config.origins);
  }
  config.sequence_parallel_size = file.sequence_parallel_size.value;
  resolve_length(line, config);
  resolve_optimizer(file, merge, config);
  resolve_recompute(file, line, merge, config);
  resolve_types(file, config);
  resolve_zero(file, model.hidden_size, config.zero, warnings);
  if (file.given()) {
    const std::string key = "zero_optimization.stage";
    config.origins.zero_stage = file.zero.stage.given() ? Origin{Origin::Kind::kFile, key}
                                                        : Origin{Origin::Kind::kDeepSpeedDefault, key + " is missing"};
  }
  resolve_compression(file, line, config.zero, warnings);
  resolve_fp8(file, line, merge, config, warnings);
  resolve_schedule(line, file, merge, config, warnings);
  merge.finish();
  config.replaced = merge.replaced();
  complete_batch(file, data_parallel_size, config);
  settle_validation(line, config.micro_batch_size * data_parallel_size, config, config.origins, warnings);
  check_fp8_batch(config, warnings);
  check_release(config, warnings);
  if (!config.counts_epochs()) {
    fit_schedule(config, config.max_steps, /*epoch=*/0, warnings);
    check_intervals(config, warnings);
  }
  warn_of_own_values(file, config, warnings);
  config.ds_config_json = file.json;
  config.sub_group_size = file.zero.sub_group_size.value;
  if (config.deepspeed_format) check_deepspeed_format(config, warnings);
  return config;
}

}  // namespace mpzero
