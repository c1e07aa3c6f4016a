#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "app/flags/options.hpp"
#include "app/flags/origin.hpp"
#include "io/ds_config/ds_config.hpp"
#include "parallel/optimizer/lr_schedule.hpp"
#include "parallel/zero/gather_schedule.hpp"

namespace mpzero {

struct OptimizerConfig {
  double lr = 5e-5;  // the schedule's peak; what an update applies comes from RunConfig::schedule
  double beta1 = 0.9;
  double beta2 = 0.95;
  double eps = 1e-8;
  double weight_decay = 0.1;          // decoupled (AdamW)
  std::vector<std::string> no_decay;  // patterns of names without it: see parallel::matches_any
  bool bias_correction = true;
};

// What decoder layers compute again in the backward pass instead of keeping it: nothing, what is cheap, all but their
// input, or, layer by layer, no more than the GPU's memory asks for.
enum class Recomputation : uint8_t { kNone, kSelective, kFull, kAuto };

// Sizes are in elements.
struct ZeroConfig {
  int stage = 0;  // 0 to 3
  bool offload_optimizer = false;
  double offload_optimizer_ratio = 1.0;  // share of the parameters that the host updates
  bool offload_ratio_automatic = false;  // as small a share as GPU memory allows, once a step has been measured
  bool offload_param = false;            // stage 3 only
  bool pin_memory = true;
  bool overlap_comm = true;
  int64_t reduce_bucket_size = std::numeric_limits<int64_t>::max();
  parallel::GatherLimits gather_limits;  // stage 3 only
  bool gather_limits_automatic = false;  // they give way to what GPU memory allows
};

// What one training run does, after the command line, ds_config.json and the number of ranks have been brought together
// and checked against each other. Nothing downstream looks at flags or JSON again.
struct RunConfig {
  // model
  std::string model_type = "qwen3_0_6b";  // names the checkpoint folders, and the preset where model_config is empty
  std::string model_config;               // path of the Hugging Face config.json; empty: the preset `model_type`
  std::string init_from;                  // safetensors folder; empty: random weights from `seed`
  ModelOverrides model_overrides;
  Recomputation recompute = Recomputation::kAuto;
  bool deterministic = false;  // the GPU's kernels repeat bit for bit

  // data
  std::string train_data;
  std::string validation_data;  // empty: no validation
  int64_t seq_length = 2048;
  bool shuffle = true;
  uint64_t seed = 42;

  // batch: train_batch_size = micro_batch_size * gradient_accumulation_steps * world_size
  int64_t train_batch_size = 0;
  int64_t micro_batch_size = 0;
  int64_t gradient_accumulation_steps = 0;

  // optimization
  OptimizerConfig optimizer;
  parallel::LrSchedule schedule;   // value type; schedule.lr(update) with update counted from 1
  double gradient_clipping = 1.0;  // largest global L2 norm; 0: off
  std::string dtype = "bf16";      // "bf16" or "fp32"
  ZeroConfig zero;
  bool schedule_ends_at_max_steps = false;   // the schedule's length is max_steps, because nobody gave another
  std::optional<double> warmup_ratio;        // the schedule's warm-up as a share of max_steps; see fit_schedule
  std::string communication_dtype = "bf16";  // of gradients; "bf16" or "fp32"
  std::string accumulation_dtype = "fp32";   // of gradients over micro-batches; "bf16" or "fp32"
  std::string moment_dtype = "fp32";         // AdamW's; "bf16" or "fp32"

  // loop
  int64_t max_steps = 1000;       // optimizer steps of the whole run; with `epochs` an upper limit until apply_epochs
  std::optional<int64_t> epochs;  // passes over the training data; see apply_epochs
  std::optional<double> num_train_epochs;  // the same as the Hugging Face Trainer counts them
  int64_t logging_freq = 10;
  int64_t validation_freq = 100;    // 0: never
  int64_t validation_batches = 10;  // micro-batches of each rank
  std::string metrics_file;
  double grace_period = 0;                 // seconds between a request to stop and the end; 0: not known
  double stuck_after = 600;                // seconds without progress after which the run ends; 0: never
  std::optional<StepRange> profile_steps;  // within max_steps; none: no trace
  std::string profile_dir;                 // empty: the metrics file's folder, else checkpoint_dir
  bool profile_all_ranks = false;          // else rank 0 alone

  // checkpoints
  std::vector<std::string> allow_changed;  // keys of kChangedOnPurpose that may differ from the checkpoint's
  bool resume_strict = false;              // a damaged checkpoint ends the run
  bool overwrite = false;                  // another run's checkpoints in checkpoint_dir are moved aside
  bool save_final = true;                  // save the state after the last step
  bool async_save = true;                  // write beside training
  bool deepspeed_format = false;           // DeepSpeed's files instead of HDF5's
  std::string checkpoint_dir = "checkpoints";
  int64_t checkpoint_freq = 500;           // 0: only at the end
  bool saves_each_epoch = false;           // checkpoint_freq is the steps in a pass; see apply_epochs
  int64_t keep_last = 0;                   // 0: all
  int64_t sub_group_size = 1'000'000'000;  // how DeepSpeed's files of stage 3 group the parameters
  std::string
      resume_from_checkpoint;  // empty: checkpoint_dir if it holds a checkpoint; "none": never; else a folder, required

  std::string device = "auto";   // "auto", "cuda" or "cpu"
  std::string network = "auto";  // "auto", "efa" or "socket"
  std::string ds_config_json;    // the text of the file in force, for the record; empty: none
  std::string ds_config_path;    // its name; empty: none
  Origins origins;               // of the values above

  // max_steps is not known before apply_epochs.
  bool counts_epochs() const { return epochs.has_value() || num_train_epochs.has_value(); }
};

// What "auto" sizes depend on.
struct ModelDims {
  int64_t hidden_size = 0;
};

// What checkpoints are named after: --model_type, or where it is missing the folder of a config.json, the name of
// another --model_config, or the folder of the weights; with none of them the default preset.
std::string model_name(const CommandLine& command_line);

// Brings flags and file together. A value that only one of them gives holds; one that both give must be the same, or a
// single UserError names every mismatch with both values and both places. What neither gives, or the file leaves as
// "auto", takes the default that --help prints; a key missing from a section that the file has takes DeepSpeed's
// default. Lines for the user are appended to `warnings`.
RunConfig resolve(const CommandLine& command_line, const io::DsConfig& ds_config, int world_size,
                  const ModelDims& model, std::vector<std::string>& warnings);

// Sets max_steps from `epochs`, when that is given, and from the number of training windows, rounded down to whole
// optimizer steps. Where --max_steps is given too the smaller of the two holds, and a line says so. `num_train_epochs`
// counts as the Trainer does where it drops what fills no step: the whole steps in a pass, times the epochs, rounded
// up; what --max_steps or `epochs` says beside it must be the same. Fits the schedule's length to it, and
// checkpoint_freq to a pass where that is asked for. Throws UserError if the data set does not fill one optimizer step.
void apply_epochs(RunConfig& config, int64_t num_windows, std::vector<std::string>& warnings);

}  // namespace mpzero
