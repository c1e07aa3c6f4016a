#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

namespace mpzero::io {

enum class SettingSource { kMissing, kAuto, kGiven };

// A value in ds_config.json and its source. A value in the file overrides the default, and "auto" selects the
// command-line value.
template <typename T>
struct Setting {
  Setting() = default;
  explicit Setting(T default_value) : value(std::move(default_value)) {}

  bool given() const { return source == SettingSource::kGiven; }
  bool is_auto() const { return source == SettingSource::kAuto; }
  bool missing() const { return source == SettingSource::kMissing; }

  T value{};  // from the file, or DeepSpeed's default if missing or "auto"
  SettingSource source = SettingSource::kMissing;
};

// The `optimizer` section. Adam and AdamW both use decoupled weight decay because DeepSpeed's default is
// adam_w_mode=true.
struct OptimizerSection {
  bool present = false;
  Setting<double> lr{1e-3};
  Setting<std::pair<double, double>> betas{{0.9, 0.999}};
  Setting<double> eps{1e-8};
  Setting<double> weight_decay{0.0};
  Setting<bool> bias_correction{true};
};

enum class SchedulerType { kNone, kWarmupLR, kWarmupDecayLR, kWarmupCosineLR };

// The `scheduler` section. Parameters of other scheduler types keep their defaults.
struct SchedulerSection {
  SchedulerType type = SchedulerType::kNone;
  Setting<double> warmup_min_lr{0.0};                    // WarmupLR, WarmupDecayLR
  Setting<double> warmup_max_lr{1e-3};                   // WarmupLR (default: optimizer lr), WarmupDecayLR
  Setting<double> warmup_min_ratio{0.0};                 // WarmupCosineLR
  Setting<double> cos_min_ratio{1e-4};                   // WarmupCosineLR; alias: cosine_min_ratio
  Setting<int64_t> warmup_num_steps{1000};               // all types
  Setting<std::string> warmup_type{std::string("log")};  // all types; "log" or "linear"
  Setting<int64_t> total_num_steps{0};                   // WarmupDecayLR, WarmupCosineLR; no default
};

enum class OffloadDevice { kNone, kCpu };

struct OffloadOptimizerSection {
  Setting<OffloadDevice> device{OffloadDevice::kNone};
  Setting<bool> pin_memory{true};
  Setting<double> ratio{1.0};  // fraction of the parameters that the CPU updates
  // mpzero extension: copy gradients to host memory before the update. No default.
  Setting<bool> release_gradients{false};
};

struct OffloadParamSection {
  Setting<OffloadDevice> device{OffloadDevice::kNone};
  Setting<bool> pin_memory{true};
};

// The `zero_optimization` section. Sizes are in elements.
struct ZeroSection {
  Setting<int64_t> stage{0};
  OffloadOptimizerSection offload_optimizer;
  OffloadParamSection offload_param;
  Setting<bool> overlap_comm{false};  // DeepSpeed's default: true only at stage 3
  Setting<int64_t> reduce_bucket_size{500'000'000};
  Setting<int64_t> allgather_bucket_size{500'000'000};
  Setting<int64_t> prefetch_bucket_size{50'000'000};
  Setting<int64_t> param_persistence_threshold{100'000};
  Setting<int64_t> max_live_parameters{1'000'000'000};
  Setting<int64_t> max_reuse_distance{1'000'000'000};
  Setting<int64_t> sub_group_size{1'000'000'000};
  // Ranks per shard group of two-level ZeRO. "auto" selects one shard group per host.
  Setting<int64_t> hpz_partition_size{1};  // 1 disables two-level ZeRO
  Setting<int64_t> mics_shard_size{-1};    // -1 disables two-level ZeRO
  // Quantized communication between shard groups.
  Setting<bool> quantized_gradients{false};
  Setting<bool> quantized_weights{false};
};

// The `fp8` section, an mpzero extension: FP8 matrix multiplications in decoder layers (docs/configuration.md).
struct Fp8Section {
  bool present = false;
  Setting<bool> enabled{true};                        // default if the section exists
  Setting<std::string> recipe{"tensorwise"};          // or "rowwise"
  Setting<std::string> format{"hybrid"};              // or "e4m3"
  Setting<std::string> fast_accumulation{"forward"};  // or "none", "all"
  Setting<bool> cache_weights{true};                  // default: enabled if memory suffices
  Setting<std::vector<std::string>> filter_fqns;
};

// The `lora` section, an mpzero extension: low-rank adapters (docs/finetuning.md).
struct LoraSection {
  bool present = false;
  Setting<int64_t> r;
  Setting<double> alpha;
  Setting<std::vector<std::string>> targets;
  Setting<double> dropout;
  Setting<bool> rslora;
  Setting<bool> load_in_8bit;
  Setting<bool> load_in_4bit;
};

// A ds_config.json file in the format of DeepSpeed 0.19. A default-constructed object represents a missing file.
struct DsConfig {
  std::string path;  // empty if no file was given
  std::string json;  // text of the file, recorded in checkpoints

  Setting<int64_t> train_batch_size;
  Setting<int64_t> train_micro_batch_size_per_gpu;
  Setting<int64_t> gradient_accumulation_steps;
  Setting<double> gradient_clipping{1.0};  // 0 disables clipping
  Setting<int64_t> steps_per_print;
  Setting<bool> wall_clock_breakdown{false};
  Setting<int64_t> sequence_parallel_size{1};
  Setting<std::string> communication_data_type;   // "fp32" or "bf16"; default: compute dtype
  Setting<std::string> grad_accum_dtype{"fp32"};  // "fp32" or "bf16"
  Setting<bool> bf16_enabled{false};
  Setting<bool> bf16_optimizer_states{false};  // true for AdamW moments in bf16
  Setting<bool> cpu_checkpointing{false};      // activation_checkpointing.cpu_checkpointing
  Setting<std::vector<std::string>> freeze;    // regular expressions for parameter names; mpzero extension
  OptimizerSection optimizer;
  SchedulerSection scheduler;
  ZeroSection zero;
  Fp8Section fp8;
  LoraSection lora;

  // Ignored keys in the file and the reasons, one line per reason.
  std::vector<std::string> warnings;

  bool given() const { return !path.empty(); }
};

// Reads and validates `path`. Throws UserError, with the key or the line and column, for invalid JSON, duplicate or
// unknown keys, values of the wrong type or out of range, and unsupported settings that would change the result of
// training if ignored.
DsConfig read_ds_config(const std::filesystem::path& path);
// Parses and validates `text`. `path` is used in messages.
DsConfig parse_ds_config(const std::string& text, const std::string& path);

}  // namespace mpzero::io
