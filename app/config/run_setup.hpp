#pragma once

#include <cstdint>
#include <filesystem>
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

// One of the files of --validation_data.
struct ValidationSize {
  ValidationFile file;
  int64_t sequences = 0;  // in the whole file
};

// A run whose inputs are read, checked and merged, before anything large is allocated.
struct RunSetup {
  RunConfig config;
  model::ModelConfig model;
  parallel::ParallelLayout layout;         // one level until the ranks' hosts are known: see parallel_layout
  int hosts = 1;                           // number of hosts; known with the layout
  std::string device = "cpu";              // or the name of the GPUs; known with the layout
  std::string recompute;                   // chosen by --recompute auto; empty: not yet, or the flag is not auto
  std::optional<double> host_ratio;        // chosen by offload_optimizer.ratio "auto"; none: not yet, or not "auto"
  bool init_from_latest = false;           // config.init_from was found through a checkpoint folder's `latest`
  bool init_adapters_latest = false;       // likewise for config.init_adapters
  std::string init_base_hash;              // hash of the base in the checkpoint config.init_adapters; empty: unknown
  bool names_model = false;                // --model_type or --model_config is given
  std::vector<TrainFile> train_files;      // with weights and sizes; empty if a file is missing
  int64_t train_windows = 0;               // sequences in the training data; 0: unknown
  int64_t train_tokens = 0;                // tokens in the training data; 0: unknown
  double attention_share = 1;              // see io::MicroBatch::attention_share; known after steps
  std::vector<ValidationSize> validation;  // only files that exist
  std::string data_order;                  // io::TrainingProgress::data_order
  std::optional<DataIdentity> data;        // known once the run starts: see identify_data
  std::vector<std::string> warnings;       // for the user, one line each
  std::string start;                       // see io::SaveJob; known once the run starts
  // Missing token files, with their flags: "--train_data data/train.h5"; see DataFiles::kMayBeMissing.
  std::vector<std::string> missing_data;
  std::string prepare_command;  // creates the first missing file
  io::RunRecord run;            // known once the checkpoint to resume from is known

  // Whether max_steps is known; with --epochs it depends on the training data.
  bool knows_length() const { return !config.counts_epochs() || !data_order.empty(); }
};

// Whether the token files must exist. Without the training data, values that depend on its size (the steps of --epochs,
// data_order) stay unset. kMayBeUnnamed: --train_data may be omitted, too.
enum class DataFiles : uint8_t { kMustExist, kMayBeMissing, kMayBeUnnamed };

// One line for the user per validation set whose file exists: "wiki: every 100 steps the first 128 of 2000 sequences of
// 2048 tokens, wiki.h5".
std::vector<std::string> describe_validation(const RunSetup& setup);

// One line for the user per source of a mixture, with its epochs in `steps` steps: "b.h5: 50% of the sequences, 1.7
// epochs in 300 steps". Empty for a single file.
std::vector<std::string> describe_mixture(const RunSetup& setup, int64_t steps);

// The folder of --init_from; empty without the flag. If its weights or adapters no longer exist, but the run in
// --checkpoint_dir (or --resume_from_checkpoint) started from them, the folder and the model that the run recorded.
// Reads `latest`, which another run may change at any moment: only one rank calls it. Throws like
// io::find_initial_folder.
io::InitialFolder find_init_from(const CommandLine& command_line);

// The absolute path of --init_from, as in a RunRecord; empty without the flag.
std::string absolute_init_from(const std::string& init_from);

// Reads ds_config.json, the model's config.json and the sizes of the datasets. Throws UserError for invalid input.
// Every rank gets the same result.
RunSetup set_up_run(const CommandLine& command_line, int world_size, DataFiles data_files = DataFiles::kMustExist);
// As above, with the result of find_init_from() on rank 0.
RunSetup set_up_run(const CommandLine& command_line, const io::InitialFolder& init, int world_size,
                    DataFiles data_files = DataFiles::kMustExist);

}  // namespace mpzero
