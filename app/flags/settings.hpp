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
  double lr = 5e-5;  // peak of the schedule; RunConfig::lr is the rate of an update
  double beta1 = 0.9;
  double beta2 = 0.95;
  double eps = 1e-8;
  double weight_decay = 0.1;          // decoupled (AdamW)
  std::vector<std::string> no_decay;  // names excluded from weight decay: see parallel::matches_any
  bool bias_correction = true;

  bool operator==(const OptimizerConfig&) const = default;
};

// LoRA adapters; members are named as in PEFT.
struct LoraSettings {
  std::optional<int64_t> r;          // none: no adapters
  std::optional<double> alpha;       // none: r
  std::vector<std::string> targets;  // empty: every projection of the layers
  std::optional<double> dropout;     // none: 0
  std::optional<bool> rslora;        // none: false
  bool load_in_8bit = false;         // store the layers' frozen matrices in int8
  bool load_in_4bit = false;         // store the layers' frozen matrices in NF4

  bool coded() const { return load_in_8bit || load_in_4bit; }
  bool operator==(const LoraSettings&) const = default;
};

// Activation checkpointing: decoder layers recompute nothing, cheap operations, everything but their input, the same
// with a tiled MLP, the same with inputs in host memory, or (kAuto) as little per layer as GPU memory allows.
enum class Recomputation : uint8_t { kNone, kSelective, kFull, kTiled, kHost, kAuto };

// When checkpoints are written: never, every checkpoint_freq steps, or after each pass over the training data.
enum class SaveStrategy : uint8_t { kNo, kSteps, kEpoch };

// The learning rate after a resume with a changed schedule. kUnset: chosen so that the rate does not jump.
enum class ScheduleOnResume : uint8_t {
  kUnset,
  kKeep,    // the checkpoint's schedule to its end, then its last rate
  kRewarm,  // a new warm-up from the checkpoint's rate, then a new decay
  kExtend,  // the new schedule, as if used from step 1
};

// A token file to validate on. `name` is empty if --validation_data is one file without a name.
struct ValidationFile {
  std::string name;
  std::string path;

  bool operator==(const ValidationFile&) const = default;
};

// Steps first to last (inclusive), counted from 1.
struct StepRange {
  int64_t first = 0;
  int64_t last = 0;

  bool operator==(const StepRange&) const = default;
};

// The values of the flags of `mpzero train`. A member's initial value is its flag's default; an empty string or
// optional means that the flag was not given. training_flags() maps flags to members.
struct Settings {
  // model
  std::string model_type = "qwen3_0_6b";  // prefix of checkpoint names; also the preset if model_config is empty
  std::string model_config;               // path of the Hugging Face config.json; empty: the preset `model_type`
  std::string init_from;                  // a folder, or a name on the hub; empty: random weights from `seed`
  std::string base_model;                 // likewise for the base of adapters in init_from; empty: the base they record
  ModelOverrides model_overrides;
  std::string dtype = "bf16";  // weights and activations: "bf16" or "fp32"
  std::string fp8 = "none";    // matrix products of layers: "none", "tensorwise" or "rowwise"
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
  int64_t source_length = 0;          // tokens of seq_length that the encoder reads; 0: no encoder
  std::optional<bool> document_mask;  // attention within documents only; none: for packed token files
  bool shuffle = true;
  uint64_t seed = 42;

  // batch: train_batch_size = micro_batch_size * gradient_accumulation_steps * data-parallel ranks
  int64_t train_batch_size = 0;  // 0: unknown until resolve()
  int64_t micro_batch_size = 1;
  int64_t gradient_accumulation_steps = 1;

  // optimization
  std::string deepspeed_config;          // path of the ds_config.json; empty: none
  bool deepspeed_config_yields = false;  // flags override its values; else both must be equal
  OptimizerConfig optimizer;
  std::vector<std::string> freeze_parameters;  // regular expressions for names: see parallel::UnitParts
  LoraSettings lora;
  double gradient_clipping = 1.0;       // maximum global L2 norm; 0: off
  int64_t quantized_gradient_bits = 8;  // between shard groups, with zero_quantized_gradients: 8 or 4
  std::string lr_scheduler_type;        // see schedule_flags()
  std::optional<int64_t> warmup_steps;
  std::optional<int64_t> num_decay_steps;  // for warmup_stable_decay and step_lr
  std::optional<double> lr_gamma;          // for step_lr
  ScheduleOnResume schedule_on_resume = ScheduleOnResume::kUnset;
  std::optional<double> warmup_ratio;  // warm-up as a fraction of max_steps; see fit_schedule

  // loop
  int64_t max_steps = 1000;       // optimizer steps of the run; with `epochs`, an upper limit until apply_epochs
  std::optional<int64_t> epochs;  // passes over the training data; see apply_epochs
  std::optional<double> num_train_epochs;  // epochs as the Hugging Face Trainer counts them
  int64_t logging_freq = 10;
  int64_t validation_freq = 100;              // 0: never
  int64_t validation_sequences = 128;         // per file, from its beginning; 0: all
  std::optional<int64_t> validation_batches;  // deprecated: micro-batches per rank; see settle_validation
  std::string metrics_file;
  int64_t metrics_port = 0;  // 0: none
  std::string metrics_address = "127.0.0.1";
  std::string metrics_sd_dir;              // empty: none
  std::string device = "auto";             // "auto", "cuda" or "cpu"
  std::string network = "auto";            // "auto", "efa" or "socket"
  double grace_period = 0;                 // seconds between a stop signal and the kill; 0: unknown
  bool ec2_notices = true;                 // poll EC2's metadata service for notices
  double stuck_after = 600;                // seconds without progress after which the run ends; 0: never
  std::optional<StepRange> profile_steps;  // within max_steps; none: no trace
  bool profile_all_ranks = false;          // else only rank 0
  std::string profile_dir;                 // empty: the metrics file's folder, else checkpoint_dir

  // dry run
  bool dry_run = false;                   // check and describe the run instead of training
  std::optional<int64_t> world_size;      // number of ranks; none: the launcher's, or 1
  std::optional<int64_t> nproc_per_node;  // ranks per host; none: the launcher's, or all

  // checkpoints
  std::string checkpoint_dir = "checkpoints";
  int64_t checkpoint_freq = 500;  // 0: only at the end
  SaveStrategy save_strategy = SaveStrategy::kSteps;
  int64_t keep_last = 0;                   // 0: all
  bool save_final = true;                  // save the state after the last step
  bool async_save = true;                  // write while training continues
  bool deepspeed_format = false;           // DeepSpeed's file format instead of HDF5
  std::string resume_from_checkpoint;      // a folder; empty: checkpoint_dir, if it has a checkpoint; "none": new run
  std::vector<std::string> allow_changed;  // keys of kChangedOnPurpose that may differ from the checkpoint's
  bool overwrite = false;                  // move another run's checkpoints in checkpoint_dir to another folder
  bool resume_strict = false;              // fail if the newest checkpoint is damaged

  bool operator==(const Settings&) const = default;
};

}  // namespace mpzero
