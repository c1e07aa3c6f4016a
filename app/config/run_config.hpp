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

// For ranks_per_node: ZeRO without nodes; as many as a host has.
constexpr int64_t kOneLevel = 0, kRanksOfHost = -1;

struct ZeroConfig {
  int stage = 0;  // 0 to 3
  bool offload_optimizer = false;
  double offload_optimizer_ratio = 1.0;  // share of the parameters that the host updates
  bool offload_ratio_automatic = false;  // as small a share as GPU memory allows, once a step has been measured
  bool offload_param = false;            // stage 3 only
  bool pin_memory = true;
  bool overlap_comm = true;
  parallel::ZeroLimits limits;
  bool gather_limits_automatic = false;  // they give way to what GPU memory allows
  // kOneLevel, kRanksOfHost, or a number, and the key that gives it; std::nullopt: none does, see choose_layout
  std::optional<int64_t> ranks_per_node;
  std::string ranks_per_node_key;
  int64_t quantized_gradient_bits = 0;  // between nodes; 0: gradients cross as they are
  bool quantized_weights = false;       // between nodes
};

// How far a run is.
struct RunPosition {
  int64_t step = 0;  // optimizer steps done
  // The next training window, counted over the epochs in windows of the run's seq_length. Of a run whose seq_length has
  // never changed: the windows that all ranks together have consumed.
  int64_t sequences_seen = 0;
  int64_t tokens_seen = 0;
  // Of a mixture, in the order of --train_data. Empty for a run that has read one file only.
  std::vector<io::MixtureSource> sources{};
};

// What one training run does, after the command line, ds_config.json and the number of ranks have been brought together
// and checked against each other: the members that flags set have the values in force, also where the file gives them.
// Nothing downstream looks at flags or JSON again.
struct RunConfig : Settings {
  parallel::LrSchedule schedule;                         // as the settings say
  std::optional<parallel::LrSchedule> resumed_schedule;  // in its place, where a resumed run has changed it
  bool schedule_ends_at_max_steps = false;  // the schedule's length is max_steps, because nobody gave another
  int64_t max_steps_given = 0;              // by --max_steps, or its default; with epochs alone: unlimited
  std::optional<int64_t> sequences;         // length of the run where epochs decide it, in training sequences
  int64_t epoch_batch = 0;  // global batch whose whole steps make an epoch: the first of the run; 0: train_batch_size
  int64_t epoch_sequences = 0;  // sequences in these steps, once the training data is known
  // Of the training data, once it is known:
  int64_t documents = 0;       // to which attention is confined, the most of a sequence; 0: to none
  bool has_loss_mask = false;  // targets have weights
  ZeroConfig zero;
  int64_t sequence_parallel_size = 1;            // ranks that share a sequence
  std::string communication_dtype = "bf16";      // of gradients; "bf16" or "fp32"
  std::string accumulation_dtype = "fp32";       // of gradients over micro-batches; "bf16" or "fp32"
  std::string moment_dtype = "fp32";             // AdamW's; "bf16" or "fp32"
  std::optional<model::Fp8Options> fp8_options;  // unless `fp8` is "none"
  int64_t sub_group_size = 1'000'000'000;        // how DeepSpeed's files of stage 3 group the parameters
  std::string ds_config_json;                    // the text of the file in force, for the record; empty: none
  std::string ds_config_path;                    // its name in messages; empty: none
  std::vector<std::string> replaced;             // "--FLAG VALUE (KEY VALUE)": values of a file that yields to flags
  std::string init_adapters;                     // the folder of adapters that a new run begins with; empty: new ones
  Origins origins;                               // of the values above and of Settings

  // The learning rate of update `update`, counted from 1.
  double lr(int64_t update) const { return schedule_in_force().lr(update); }
  const parallel::LrSchedule& schedule_in_force() const { return resumed_schedule ? *resumed_schedule : schedule; }
  // Of a rank.
  int64_t micro_batch_tokens() const { return micro_batch_size * seq_length / sequence_parallel_size; }
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

// Global batch, micro-batch, accumulation and ranks do not belong together.
class BatchRefused : public UserError {
 public:
  using UserError::UserError;
};

// Brings flags and file together. A value that only one of them gives holds; one that both give must be the same, or a
// single UserError names every mismatch with both values and both places. What neither gives, or the file leaves as
// "auto", takes the default that --help prints; a key missing from a section that the file has takes DeepSpeed's
// default. Lines for the user are appended to `warnings`.
RunConfig resolve(const CommandLine& command_line, const io::DsConfig& ds_config, int data_parallel_size,
                  const ModelDims& model, std::vector<std::string>& warnings);

// Sets max_steps and `sequences` from `epochs`, when that is given, and from the number of training windows: the steps
// done at `at`, and as many whole optimizer steps as the windows that remain there give. If --max_steps is given too,
// the smaller of the two holds, with a warning. `num_train_epochs` counts as the Trainer does with dropped last
// batches: the whole steps of an epoch, of `epoch_batch` sequences, times the epochs, rounded up; --max_steps and
// `epochs` must agree with it.
//
// The schedule is fitted to a whole run of this batch size, and advances with the sequences: at `at` it is as far as
// its share of them. checkpoint_freq becomes the steps of an epoch for --save_strategy epoch. May be called again for
// another position. Throws UserError if the data set does not fill one optimizer step.
void apply_epochs(RunConfig& config, int64_t num_windows, std::vector<std::string>& warnings,
                  const RunPosition& at = {});

// Whether the step that has brought the run to `at` is one after which --checkpoint_freq or --save_strategy epoch
// saves.
bool saves_at(const RunConfig& config, const RunPosition& at);
// Steps from `at` to the next such step; nothing if there is none.
std::optional<int64_t> steps_to_next_save(const RunConfig& config, const RunPosition& at);

}  // namespace mpzero
