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

// Values of ranks_per_node: one level (a single shard group); one shard group per host.
constexpr int64_t kOneLevel = 0, kRanksOfHost = -1;

struct ZeroConfig {
  int stage = 0;  // 0 to 3
  bool offload_optimizer = false;
  double offload_optimizer_ratio = 1.0;  // fraction of the parameters that the host updates
  bool offload_ratio_automatic = false;  // the smallest ratio that fits into GPU memory, after measuring a step
  bool offload_param = false;            // stage 3 only
  bool pin_memory = true;
  bool overlap_comm = true;
  parallel::ZeroLimits limits;
  bool gather_limits_automatic = false;  // limits adapt to GPU memory
  // Size of a shard group: kOneLevel, kRanksOfHost or a number, and the key that sets it; std::nullopt: see
  // choose_layout
  std::optional<int64_t> ranks_per_node;
  std::string ranks_per_node_key;
  int64_t quantized_gradient_bits = 0;  // between shard groups; 0: not quantized
  bool quantized_weights = false;       // between shard groups
};

// The progress of a run.
struct RunPosition {
  int64_t step = 0;  // optimizer steps done
  // Index of the next training window, counted across epochs in windows of the run's seq_length. If seq_length has
  // never changed, the number of windows that all ranks have consumed.
  int64_t sequences_seen = 0;
  int64_t tokens_seen = 0;
  // Positions in a mixture, in the order of --train_data. Empty for a run that has read only one file.
  std::vector<io::MixtureSource> sources{};
};

// The configuration of a training run: the command line, ds_config.json and the number of ranks, merged and checked
// against each other. Members of Settings have their effective values, even if the file sets them. Code downstream
// reads neither flags nor JSON.
struct RunConfig : Settings {
  parallel::LrSchedule schedule;                         // from the settings
  std::optional<parallel::LrSchedule> resumed_schedule;  // replaces it if a resumed run has changed it
  bool schedule_ends_at_max_steps = false;               // because no other length is set
  int64_t max_steps_given = 0;       // --max_steps or its default; unlimited if only epochs are given
  std::optional<int64_t> sequences;  // length of the run in training sequences, if epochs set it
  int64_t epoch_batch = 0;           // global batch that epochs are counted in: the run's first; 0: train_batch_size
  int64_t epoch_sequences = 0;       // sequences in an epoch's whole steps; known with the training data
  // Set once the training data is known:
  int64_t documents = 0;       // maximum per sequence, for the document mask; 0: no mask
  bool has_loss_mask = false;  // targets are weighted
  ZeroConfig zero;
  int64_t sequence_parallel_size = 1;            // ranks that share a sequence
  std::string communication_dtype = "bf16";      // gradients: "bf16" or "fp32"
  std::string accumulation_dtype = "fp32";       // gradients over micro-batches: "bf16" or "fp32"
  std::string moment_dtype = "fp32";             // AdamW's moments: "bf16" or "fp32"
  std::optional<model::Fp8Options> fp8_options;  // none if `fp8` is "none"
  int64_t sub_group_size = 1'000'000'000;        // elements per parameter group in DeepSpeed's files of stage 3
  std::string ds_config_json;                    // text of ds_config.json, for the record; empty: none
  std::string ds_config_path;                    // its path, for messages; empty: none
  std::vector<std::string> replaced;             // values of the file that flags override: "--FLAG VALUE (KEY VALUE)"
  std::string init_adapters;                     // folder of a new run's initial adapters; empty: new ones
  Origins origins;                               // origins of the values above and in Settings

  // The learning rate of `update`, counted from 1.
  double lr(int64_t update) const { return schedule_in_force().lr(update); }
  const parallel::LrSchedule& schedule_in_force() const { return resumed_schedule ? *resumed_schedule : schedule; }
  // Tokens of a micro-batch on one rank.
  int64_t micro_batch_tokens() const { return micro_batch_size * seq_length / sequence_parallel_size; }
  // Whether epochs set the length; max_steps is then unknown until apply_epochs.
  bool counts_epochs() const { return epochs.has_value() || num_train_epochs.has_value(); }
};

// The model dimensions that "auto" sizes depend on.
struct ModelDims {
  int64_t hidden_size = 0;
};

// The prefix of checkpoint names: --model_type; else the folder of a config.json or the stem of another --model_config;
// else the folder of the weights; else the default preset.
std::string model_name(const CommandLine& command_line);

// Global batch, micro-batch, accumulation and ranks are inconsistent.
class BatchRefused : public UserError {
 public:
  using UserError::UserError;
};

// Merges flags and file. A value set in both must be equal; otherwise one UserError lists every mismatch with both
// values and both sources. A value set in neither, or "auto" in the file, takes the default that --help prints; a key
// missing from a section that the file has takes DeepSpeed's default. Appends lines for the user to `warnings`.
RunConfig resolve(const CommandLine& command_line, const io::DsConfig& ds_config, int data_parallel_size,
                  const ModelDims& model, std::vector<std::string>& warnings);

// Sets max_steps and `sequences` from `epochs`, if given, and the number of training windows: the steps done at `at`,
// plus the whole optimizer steps in the remaining windows. If --max_steps is given too, the smaller one applies, with a
// warning. `num_train_epochs` counts like the Trainer with dropped last batches: the whole steps of `epoch_batch`
// sequences in an epoch, times the epochs, rounded up; --max_steps and `epochs` must agree with it.
//
// Fits the schedule to a whole run with this batch size; its position at `at` is the fraction of sequences seen. With
// --save_strategy epoch, sets checkpoint_freq to the steps of an epoch. May be called again for another position.
// Throws UserError if the dataset does not fill one optimizer step.
void apply_epochs(RunConfig& config, int64_t num_windows, std::vector<std::string>& warnings,
                  const RunPosition& at = {});

// Whether --checkpoint_freq or --save_strategy epoch saves after the step that ends at `at`.
bool saves_at(const RunConfig& config, const RunPosition& at);
// Steps from `at` to the next save; std::nullopt if there is none.
std::optional<int64_t> steps_to_next_save(const RunConfig& config, const RunPosition& at);

}  // namespace mpzero
