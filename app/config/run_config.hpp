#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "app/flags/options.hpp"
#include "app/flags/origin.hpp"
#include "base/error.hpp"
#include "io/data/mixture.hpp"
#include "io/ds_config/ds_config.hpp"
#include "model/fp8/options.hpp"
#include "parallel/optimizer/lr_schedule.hpp"
#include "parallel/zero/zero_limits.hpp"

namespace mpzero {

// Special values of ranks_per_node. kOneLevel: a single shard group. kRanksOfHost: one shard group per host.
constexpr int64_t kOneLevel = 0, kRanksOfHost = -1;

struct ZeroConfig {
  int stage = 0;  // 0 to 3
  bool offload_optimizer = false;
  double offload_optimizer_ratio = 1.0;  // fraction of the parameters updated on the CPU
  bool offload_ratio_automatic = false;  // after the first step, choose the smallest ratio that fits into GPU memory
  // Copy gradients to host memory as soon as they are summed; see parallel::ZeroOptions. std::nullopt: see
  // RunMemory::choose_release()
  std::optional<bool> release_gradients;
  bool offload_param = false;  // stage 3 only
  bool pin_memory = true;
  bool overlap_comm = true;
  parallel::ZeroLimits limits;
  bool gather_limits_automatic = false;  // adapt `limits` to GPU memory
  // Number of ranks per shard group, or kOneLevel or kRanksOfHost; std::nullopt: see choose_layout(). The next
  // member is the key that sets the value.
  std::optional<int64_t> ranks_per_node;
  std::string ranks_per_node_key;
  int64_t quantized_gradient_bits = 0;  // bits per gradient value between shard groups; 0: not quantized
  bool quantized_weights = false;       // quantize parameters sent between shard groups
};

// Returns true if the recomputation level offloads activations to host memory.
constexpr bool offloads_activations(Recomputation level) {
  return level == Recomputation::kHost || level == Recomputation::kHostAttention;
}

struct RunPosition {
  int64_t step = 0;  // completed optimizer steps
  // Index of the next training sequence across all epochs, in units of the current seq_length. The index equals the
  // number of sequences consumed by all ranks, unless seq_length has changed.
  int64_t sequences_seen = 0;
  int64_t tokens_seen = 0;
  // Positions in the sources of a mixture, in the order of --train_data; empty for a single file.
  std::vector<io::MixtureSource> sources{};
};

// The configuration of a training run, merged from the command line, ds_config.json and the number of ranks, and
// validated. Members of Settings have their effective values, including those from ds_config.json. Downstream code uses
// only this struct, not flags or JSON.
struct RunConfig : Settings {
  parallel::LrSchedule schedule;                         // from flags or ds_config.json
  std::optional<parallel::LrSchedule> resumed_schedule;  // overrides `schedule` in a resumed run
  bool schedule_ends_at_max_steps = false;               // neither flags nor ds_config.json set the schedule's length
  int64_t max_steps_given = 0;                           // --max_steps or its default; unlimited if only epochs are set
  std::optional<int64_t> sequences;                      // length of the run in sequences, if set by epochs
  int64_t epoch_batch = 0;      // initial global batch size of the run, for counting epochs; 0: train_batch_size
  int64_t epoch_sequences = 0;  // sequences in the complete steps of an epoch; set once the training data is known
  // The following two members are set once the training data is known.
  int64_t documents = 0;       // maximum number of documents per sequence; 0: no document mask
  bool has_loss_mask = false;  // targets have weights
  ZeroConfig zero;
  int64_t sequence_parallel_size = 1;            // ranks per sequence
  std::string communication_dtype = "bf16";      // of gradients: "bf16" or "fp32"
  std::string accumulation_dtype = "fp32";       // of accumulated gradients: "bf16" or "fp32"
  std::string moment_dtype = "fp32";             // of AdamW's moments: "bf16" or "fp32"
  std::optional<model::Fp8Options> fp8_options;  // std::nullopt if `fp8` is "none"
  int64_t sub_group_size = 1'000'000'000;        // elements per parameter group in DeepSpeed's stage 3 files
  std::string ds_config_json;                    // content of ds_config.json, for checkpoints; empty: no file
  std::string ds_config_path;                    // path of ds_config.json, for messages; empty: no file
  std::vector<std::string> replaced;             // keys that flags override: "--FLAG VALUE (KEY VALUE)"
  std::string init_adapters;                     // folder of the initial adapters; empty: new adapters
  Origins origins;                               // origins of the values above and of Settings

  // Returns the learning rate of the optimizer step `update`, counted from 1.
  double lr(int64_t update) const { return schedule_in_force().lr(update); }
  const parallel::LrSchedule& schedule_in_force() const { return resumed_schedule ? *resumed_schedule : schedule; }
  // Returns the number of tokens in one rank's micro-batch.
  int64_t length_on_rank() const { return seq_length / sequence_parallel_size; }
  int64_t micro_batch_tokens() const { return micro_batch_size * length_on_rank(); }
  // Returns true if mpzero chooses whether a run on GPUs releases gradients.
  bool may_release_gradients() const {
    return zero.offload_optimizer && !zero.release_gradients && gradient_accumulation_steps == 1;
  }
  // Returns true if epochs set the run's length. max_steps is then unknown until apply_epochs().
  bool counts_epochs() const { return epochs.has_value() || num_train_epochs.has_value(); }
};

// Model dimensions that determine "auto" sizes.
struct ModelDims {
  int64_t hidden_size = 0;
};

// Returns the prefix of checkpoint names, in order of precedence: --model_type, the parent folder or file stem of
// --model_config, the folder of the weights, the default preset.
std::string model_name(const CommandLine& command_line);

// Thrown if global batch size, micro-batch size, gradient accumulation and number of ranks are inconsistent.
class BatchRefused : public UserError {
 public:
  using UserError::UserError;
};

// Merges flags and ds_config.json. Throws a single UserError that lists all conflicts. A value that neither the command
// line nor ds_config.json sets, or that is "auto", gets the default shown in --help. A key that is missing from an
// existing section gets DeepSpeed's default. Appends to `warnings`.
RunConfig resolve(const CommandLine& command_line, const io::DsConfig& ds_config, int data_parallel_size,
                  const ModelDims& model, std::vector<std::string>& warnings);

// Returns " --deepspeed_config_yields true" if ds_config.json sets one of the flags, because a different value on the
// command line would otherwise be refused; else "". Advice to pass these flags must end with the returned text.
std::string yields_for(const RunConfig& config, const std::vector<std::string>& flags);

// For a run whose train_batch_size is computed, returns flags that set the global batch size to `train_batch_size` with
// the same number of ranks and at most the same micro-batch size; std::nullopt if there are no such flags.
std::optional<std::string> flags_for_batch(const RunConfig& config, int64_t train_batch_size);

// Sets max_steps and `sequences` from `epochs`, if set: max_steps is the number of steps completed at `at`, plus the
// complete optimizer steps in the remaining sequences. If --max_steps is also set, the smaller value applies, with a
// warning. `num_train_epochs` counts epochs like the Trainer with dataloader_drop_last: complete steps of `epoch_batch`
// sequences per epoch, times the number of epochs, rounded up. The number of steps from `num_train_epochs` must be
// consistent with --max_steps and `epochs`.
//
// Fits the schedule to the complete run at the current batch size. The schedule's progress at `at` is the fraction of
// the run's sequences seen so far. With --save_strategy epoch, sets checkpoint_freq to the number of steps per epoch.
// May be called again with a different `at`. Throws UserError if the dataset is smaller than one global batch.
void apply_epochs(RunConfig& config, int64_t num_windows, std::vector<std::string>& warnings,
                  const RunPosition& at = {});

// Returns true if --checkpoint_freq or --save_strategy epoch requires a save after the step that ends at `at`.
bool saves_at(const RunConfig& config, const RunPosition& at);
// Returns the number of steps from `at` to the next periodic save; std::nullopt if there is none.
std::optional<int64_t> steps_to_next_save(const RunConfig& config, const RunPosition& at);

}  // namespace mpzero
