#pragma once

#include <cstdint>
#include <filesystem>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "app/config/recorded_settings.hpp"
#include "app/config/run_config.hpp"
#include "app/flags/options.hpp"
#include "app/tokens/train_files.hpp"
#include "io/checkpoint/run_record.hpp"
#include "io/weights/initial_weights.hpp"
#include "model/architecture/config.hpp"
#include "parallel/zero/levels.hpp"

namespace mpzero {

// A file of --validation_data and its size.
struct ValidationSize {
  ValidationFile file;
  int64_t sequences = 0;  // total in the file
};

// The validated inputs of a run, before GPU or host memory is allocated.
struct RunSetup {
  RunConfig config;
  model::ModelConfig model;
  parallel::ParallelLayout layout;  // one level until the hosts are known: see parallel_layout()
  int hosts = 1;                    // set with the layout
  std::string device = "cpu";       // "cpu" or the name of the GPUs; set with the layout
  std::string recompute;            // level chosen by --recompute auto; empty: not chosen yet, or not auto
  std::optional<double>
      host_ratio;                 // ratio chosen by offload_optimizer.ratio "auto"; unset: not chosen yet, or not auto
  bool init_from_latest = false;  // config.init_from was read from a checkpoint folder's `latest`
  bool init_adapters_latest = false;       // config.init_adapters was read from a checkpoint folder's `latest`
  std::string init_base_hash;              // base hash recorded in config.init_adapters; empty: unknown
  bool names_model = false;                // --model_type or --model_config is set
  std::vector<TrainFile> train_files;      // with weights and sizes; empty if a file is missing
  int64_t train_windows = 0;               // number of training sequences; 0: unknown
  int64_t train_tokens = 0;                // number of training tokens; 0: unknown
  double attention_share = 1;              // see io::MicroBatch::attention_share; measured while training
  std::vector<ValidationSize> validation;  // excludes missing files
  std::string data_order;                  // io::TrainingProgress::data_order
  std::optional<DataIdentity> data;        // set when the run starts: see identify_data()
  std::vector<std::string> warnings;       // one line each
  std::string start;                       // see io::SaveJob; set when the run starts
  // Number of ranks per host whose GPUs access each other's memory; 1 if none do. Set before the layout.
  int peer_gpus = std::numeric_limits<int>::max();
  // Missing token files with their flags: "--train_data data/train.h5". See DataFiles::kMayBeMissing.
  std::vector<std::string> missing_data;
  std::string prepare_command;  // command that creates the first missing file
  io::RunRecord run;            // set when the checkpoint to resume from is known

  // Returns true if max_steps is known. With epochs, max_steps depends on the training data.
  bool knows_length() const { return !config.counts_epochs() || !data_order.empty(); }
};

// Requirements on token files. If the training data is missing, values that depend on its size (data_order, the steps
// of --epochs) are unset. kMayBeUnnamed: --train_data may also be omitted.
enum class DataFiles : uint8_t { kMustExist, kMayBeMissing, kMayBeUnnamed };

// Warns if ds_config.json sets release_gradients but `setup.device` is the CPU.
void warn_of_device(RunSetup& setup);

// Returns the bytes of unsharded parameters that each GPU would keep with stage 2; 0 if no parameters are sharded.
int64_t stage_2_bytes(const RunSetup& setup);

// Returns one line per validation set whose file exists: "wiki, every 100 steps: the first 128 of 2000 sequences of
// 2048 tokens in wiki.h5".
std::vector<std::string> describe_validation(const RunSetup& setup);

// Returns one line per source of a mixture, with its number of epochs in `steps` steps: "b.h5: 50% of the sequences,
// 1.7 epochs in 300 steps". Returns an empty vector for a single file.
std::vector<std::string> describe_mixture(const RunSetup& setup, int64_t steps);

// Returns the folder of --init_from; empty if the flag is not set. If the weights or adapters no longer exist, but the
// run in --checkpoint_dir or --resume_from_checkpoint started from them, returns the folder and model that the run
// recorded. Reads `latest`, which a concurrent run may change, so only one rank may call this function. See
// io::find_initial_folder() for errors.
io::InitialFolder find_init_from(const CommandLine& command_line);

// Returns the absolute path of --init_from, as stored in RunRecord; empty if `init_from` is empty.
std::string absolute_init_from(const std::string& init_from);

// Reads ds_config.json, the model's config.json and the sizes of the datasets. Returns the same result on every rank.
// Throws UserError for invalid input.
RunSetup set_up_run(const CommandLine& command_line, int world_size, DataFiles data_files = DataFiles::kMustExist);
// Overload for several ranks. `init`: result of find_init_from() on rank 0.
RunSetup set_up_run(const CommandLine& command_line, const io::InitialFolder& init, int world_size,
                    DataFiles data_files = DataFiles::kMustExist);
// Overload with a parsed ds_config.json, which replaces --deepspeed_config.
RunSetup set_up_run(const CommandLine& command_line, const io::InitialFolder& init, const io::DsConfig& ds_config,
                    int world_size, DataFiles data_files);

}  // namespace mpzero
