#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace mpzero {

// Fields of the model's config.json that the command line overrides.
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
  std::optional<double> dropout_rate;

  bool operator==(const ModelOverrides&) const = default;
};

struct OptimizerConfig {
  double lr = 5e-5;  // peak learning rate of the schedule
  double beta1 = 0.9;
  double beta2 = 0.95;
  double eps = 1e-8;
  double weight_decay = 0.1;  // decoupled (AdamW)
  // Substrings of the names of parameters excluded from weight decay; see parallel::matches_any().
  std::vector<std::string> no_decay;
  bool bias_correction = true;

  bool operator==(const OptimizerConfig&) const = default;
};

// LoRA settings, named as in PEFT.
struct LoraSettings {
  std::optional<int64_t> r;          // std::nullopt: no adapters
  std::optional<double> alpha;       // std::nullopt: r
  std::vector<std::string> targets;  // empty: all projections of the decoder layers
  std::optional<double> dropout;     // std::nullopt: 0
  std::optional<bool> rslora;        // std::nullopt: false
  bool load_in_8bit = false;         // store frozen layer weights in int8
  bool load_in_4bit = false;         // store frozen layer weights in NF4

  bool coded() const { return load_in_8bit || load_in_4bit; }
  bool operator==(const LoraSettings&) const = default;
};

// Activation checkpointing of decoder layers. kSelective recomputes cheap operations, kFull the whole layer, and
// kAttention the layer except attention. kTiled is kFull with a tiled MLP, kHost is kTiled with layer inputs in host
// memory, kHostAttention also keeps attention outputs there, and kAuto selects the fastest levels that fit.
enum class Recomputation : uint8_t { kNone, kSelective, kAttention, kFull, kTiled, kHostAttention, kHost, kAuto };

// When to save periodic checkpoints: never, every checkpoint_freq steps, or after each pass over the training data.
enum class SaveStrategy : uint8_t { kNo, kSteps, kEpoch };

// Learning rate after a resume with a changed schedule. kUnset: mpzero avoids a jump in the learning rate.
enum class ScheduleOnResume : uint8_t {
  kUnset,
  kKeep,    // the checkpoint's schedule, followed by its last rate
  kRewarm,  // a new warm-up from the checkpoint's rate, then a new decay
  kExtend,  // the new schedule, as if used from step 1
};

// A validation token file. `name` is empty if --validation_data is a single file without a name.
struct ValidationFile {
  std::string name;
  std::string path;

  bool operator==(const ValidationFile&) const = default;
};

// An inclusive range of steps, counted from 1.
struct StepRange {
  int64_t first = 0;
  int64_t last = 0;

  bool operator==(const StepRange&) const = default;
};

// The values of the flags of `mpzero train`. Initial values are the defaults. An empty string or optional means that
// the flag was not set. training_flags() maps flags to members.
struct Settings {
  // model
  std::string model_type = "qwen3_0_6b";  // prefix of checkpoint names, and the preset if model_config is empty
  std::string model_config;               // path of the Hugging Face config.json; empty: preset `model_type`
  std::string init_from;                  // folder or Hugging Face name; empty: random weights from `seed`
  std::string base_model;                 // base of the adapters in init_from; empty: the recorded base
  ModelOverrides model_overrides;
  std::string dtype = "bf16";  // weights and activations: "bf16" or "fp32"
  std::string fp8 = "none";    // scaling of FP8 matmuls: "none", "tensorwise" or "rowwise"
  Recomputation recompute = Recomputation::kAuto;
  std::optional<bool> gradient_checkpointing;  // the Trainer's flag: sets `recompute` to kFull or kNone
  bool deterministic = false;                  // bit-identical results on GPUs

  // data
  std::string train_data;
  std::vector<ValidationFile> validation_data;  // empty: no validation
  std::string dataset;                          // input of prepare_data.py
  std::string dataset_config_name;
  std::optional<bool> local_dataset;
  std::string tokenizer;
  int64_t seq_length = 2048;
  int64_t source_length = 0;          // encoder tokens, part of seq_length; 0: no encoder
  std::optional<bool> document_mask;  // std::nullopt: only for packed token files
  bool shuffle = true;
  uint64_t seed = 42;

  // batch: train_batch_size = micro_batch_size * gradient_accumulation_steps * data-parallel ranks
  int64_t train_batch_size = 0;  // 0: unknown until resolve()
  int64_t micro_batch_size = 1;
  int64_t gradient_accumulation_steps = 1;

  // optimization
  std::string deepspeed_config;          // path of ds_config.json; empty: none
  bool deepspeed_config_yields = false;  // flags override keys of ds_config.json; otherwise the values must be equal
  OptimizerConfig optimizer;
  std::vector<std::string> freeze_parameters;  // regular expressions for parameter names: see parallel::UnitParts
  LoraSettings lora;
  double gradient_clipping = 1.0;       // maximum global L2 norm; 0: off
  int64_t quantized_gradient_bits = 8;  // 8 or 4; used with zero_quantized_gradients
  std::string lr_scheduler_type;        // empty: see resolve_schedule()
  std::optional<int64_t> warmup_steps;
  std::optional<int64_t> num_decay_steps;  // used by warmup_stable_decay and step_lr
  std::optional<double> lr_gamma;          // decay factor of step_lr
  ScheduleOnResume schedule_on_resume = ScheduleOnResume::kUnset;
  std::optional<double> warmup_ratio;  // warm-up as a fraction of max_steps: see fit_schedule()

  // loop
  int64_t max_steps = 1000;                // optimizer steps; with `epochs`, an upper limit until apply_epochs()
  std::optional<int64_t> epochs;           // passes over the training data: see apply_epochs()
  std::optional<double> num_train_epochs;  // epochs, counted as in the Hugging Face Trainer
  int64_t logging_freq = 10;
  bool wall_clock_breakdown = false;          // log a breakdown of the step time
  int64_t validation_freq = 100;              // 0: never
  int64_t validation_sequences = 128;         // sequences from the start of each file; 0: all
  std::optional<int64_t> validation_batches;  // deprecated, micro-batches per rank: see settle_validation()
  std::string metrics_file;
  int64_t metrics_port = 0;  // 0: disabled
  std::string metrics_address = "127.0.0.1";
  std::string metrics_sd_dir;              // empty: none
  std::string device = "auto";             // "auto", "cuda" or "cpu"
  std::string network = "auto";            // "auto", "efa" or "socket"
  double grace_period = 0;                 // seconds from a stop signal to SIGKILL; 0: unknown
  bool ec2_notices = true;                 // poll the EC2 metadata service for notices
  double stuck_after = 600;                // timeout in seconds without progress; 0: none
  std::optional<StepRange> profile_steps;  // std::nullopt: no trace
  bool profile_all_ranks = false;          // false: only rank 0
  std::string profile_dir;                 // empty: folder of the metrics file, or checkpoint_dir

  // dry run
  bool dry_run = false;                   // validate and describe the run without training
  std::optional<int64_t> world_size;      // std::nullopt: set by the launcher, or 1
  std::optional<int64_t> nproc_per_node;  // std::nullopt: set by the launcher, or all ranks

  // checkpoints
  std::string checkpoint_dir = "checkpoints";
  int64_t checkpoint_freq = 500;  // steps; 0: only at the end
  SaveStrategy save_strategy = SaveStrategy::kSteps;
  int64_t keep_last = 0;               // number of checkpoints; 0: all
  bool save_final = true;              // save after the last step
  bool async_save = true;              // save in the background
  bool deepspeed_format = false;       // write DeepSpeed's format instead of HDF5
  std::string resume_from_checkpoint;  // folder; "none": new run; empty: checkpoint_dir, if it contains a checkpoint
  std::vector<std::string> allow_changed;  // keys that may differ from the checkpoint's: see kChangedOnPurpose
  bool overwrite = false;                  // move other runs' checkpoints out of checkpoint_dir
  bool resume_strict = false;              // fail if the newest checkpoint is damaged

  bool operator==(const Settings&) const = default;
};

}  // namespace mpzero
