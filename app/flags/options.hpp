#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace mpzero {

// Fields of the model's config.json that the command line replaces.
struct ModelOverrides {
  std::optional<int64_t> vocab_size;
  std::optional<int64_t> hidden_size;
  std::optional<int64_t> intermediate_size;
  std::optional<int64_t> num_hidden_layers;
  std::optional<int64_t> num_attention_heads;
  std::optional<int64_t> num_key_value_heads;
  std::optional<int64_t> head_dim;
  std::optional<int64_t> max_position_embeddings;
  std::optional<double> rms_norm_eps;
  std::optional<double> rope_theta;

  bool operator==(const ModelOverrides&) const = default;
};

// Steps first .. last, counted from 1.
struct StepRange {
  int64_t first = 0;
  int64_t last = 0;

  bool operator==(const StepRange&) const = default;
};

// The flags of `mpzero train` as they were given: an empty optional is a flag that was not. Defaults belong to
// resolve().
struct CommandLine {
  bool help = false;

  // model
  std::optional<std::string> model_type;
  std::optional<std::string> model_config;
  std::optional<std::string> init_from;
  ModelOverrides model_overrides;
  std::optional<std::string> recompute;        // "none", "selective", "full" or "auto"
  std::optional<bool> gradient_checkpointing;  // the Trainer's: recompute "full" or "none"
  std::optional<bool> bf16;
  std::optional<bool> deterministic;

  // data
  std::optional<std::string> train_data;
  std::optional<std::string> validation_data;
  std::optional<std::string> dataset;
  std::optional<std::string> dataset_config_name;
  std::optional<bool> local_dataset;
  std::optional<std::string> tokenizer;
  std::optional<int64_t> seq_length;
  std::optional<bool> shuffle;
  std::optional<uint64_t> seed;

  // batch and optimization
  std::optional<std::string> deepspeed_config;
  std::optional<int64_t> train_batch_size;
  std::optional<int64_t> train_micro_batch_size_per_gpu;
  std::optional<int64_t> gradient_accumulation_steps;
  std::optional<double> learning_rate;
  std::optional<double> beta1;
  std::optional<double> beta2;
  std::optional<double> adam_epsilon;
  std::optional<double> weight_decay;
  std::optional<std::string> no_decay;  // patterns with commas between them
  std::optional<double> grad_clip;
  std::optional<std::string> lr_scheduler_type;  // "linear", "cosine", "constant" or "constant_with_warmup"
  std::optional<int64_t> warmup_steps;
  std::optional<double> warmup_ratio;  // of all steps

  // loop
  std::optional<int64_t> max_steps;
  std::optional<int64_t> epochs;
  std::optional<double> num_train_epochs;
  std::optional<int64_t> logging_freq;
  std::optional<int64_t> validation_freq;
  std::optional<int64_t> validation_batches;
  std::optional<std::string> metrics_file;
  std::optional<std::string> device;   // "auto", "cuda" or "cpu"
  std::optional<std::string> network;  // "auto", "efa" or "socket"
  std::optional<double> grace_period;
  std::optional<double> stuck_after;
  std::optional<StepRange> profile_steps;
  std::optional<std::string> profile_ranks;  // "0" or "all"
  std::optional<std::string> profile_dir;

  // checkpoints
  std::optional<std::string> checkpoint_dir;
  std::optional<int64_t> checkpoint_freq;
  std::optional<int64_t> keep_last;
  std::optional<std::string> checkpoint_format;  // "hdf5" or "deepspeed"
  std::optional<std::string> resume_from_checkpoint;
  std::optional<std::string> allow_changed;  // keys with commas between them
  std::optional<bool> resume_strict;
  std::optional<bool> overwrite;
  std::optional<bool> save_final;
  std::optional<bool> async_save;
  std::optional<std::string> save_strategy;  // "no", "steps" or "epoch"

  // The flags that were given under another name, and that name: {"grad_clip", "max_grad_norm"}.
  std::map<std::string, std::string> other_names;

  // The name under which `flag` was given, or its own.
  std::string name_of(const std::string& flag) const;

  bool operator==(const CommandLine&) const = default;
};

// Parses the flags behind `mpzero train`: `--flag value` or `--flag=value`; booleans take true or false, and a bare
// boolean flag means true. A flag may be given under two of its names if the values are the same. Throws UserError
// naming the flag: unknown (with the nearest known one), repeated, without a value, out of range.
CommandLine parse_command_line(const std::vector<std::string>& arguments);

// What `mpzero train --help` prints: flags in groups, with their defaults.
std::string command_line_help();

}  // namespace mpzero
