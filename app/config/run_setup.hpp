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
  int64_t sequences = 0;  // that it has
};

// A run that has been read, checked and brought together, before anything large is allocated.
struct RunSetup {
  RunConfig config;
  model::ModelConfig model;
  parallel::ParallelLayout layout;         // one level until it is known where the ranks are: see parallel_layout
  int hosts = 1;                           // that the ranks are on; known with the layout
  std::string device = "cpu";              // or the name of the GPUs; likewise
  std::string recompute;                   // that --recompute auto has chosen; empty: not yet, or the flag is not auto
  std::optional<double> host_ratio;        // that offload_optimizer.ratio "auto" has chosen; likewise
  bool init_from_latest = false;           // config.init_from is what the `latest` of a folder of checkpoints names
  bool init_adapters_latest = false;       // likewise config.init_adapters
  std::string init_base_hash;              // of the base of the checkpoint in config.init_adapters; empty: not known
  bool names_model = false;                // by --model_type or --model_config
  std::vector<TrainFile> train_files;      // with weights and sizes; empty: one is missing
  int64_t train_windows = 0;               // sequences of the training data; 0: not known
  int64_t train_tokens = 0;                // likewise
  double attention_share = 1;              // see io::MicroBatch::attention_share; known after steps
  std::vector<ValidationSize> validation;  // of the files that are there
  std::string data_order;                  // io::TrainingProgress::data_order
  std::optional<DataIdentity> data;        // known once the run starts: see identify_data
  std::vector<std::string> warnings;       // for the user, one line each
  std::string start;                       // likewise; see io::SaveJob
  // Token files that are not there, by flag, as "--train_data data/train.h5"; see DataFiles::kMayBeMissing.
  std::vector<std::string> missing_data;
  std::string prepare_command;  // that makes the first of them
  io::RunRecord run;            // known once it is clear what the run resumes from

  // Whether max_steps is known: that of --epochs follows from the training data.
  bool knows_length() const { return !config.counts_epochs() || !data_order.empty(); }
};

// Whether the token files must exist. Without the training data its size is not known, and what depends on it (the
// steps of --epochs, data_order) stays open. kMayBeUnnamed: nor need --train_data be given.
enum class DataFiles : uint8_t { kMustExist, kMayBeMissing, kMayBeUnnamed };

// For a user, a line for each validation set whose file is there: "wiki: every 100 steps the first 128 of 2000
// sequences of 2048 tokens, wiki.h5".
std::vector<std::string> describe_validation(const RunSetup& setup);

// For a user, a line for each source of a mixture, with the epochs of it that `steps` take: "b.h5: 50% of the
// sequences, 1.7 epochs in 300 steps". None where one file is read.
std::vector<std::string> describe_mixture(const RunSetup& setup, int64_t steps);

// What --init_from names; empty without the flag. Where its weights or adapters are gone, and the run in
// --checkpoint_dir (or --resume_from_checkpoint) began with them, the folder that the run recorded, with the run's
// model. Reads `latest`, which another run may change at any moment: one rank calls it for all. Throws as
// io::find_initial_folder.
io::InitialFolder find_init_from(const CommandLine& command_line);

// The absolute path of --init_from as a RunRecord has it; empty where the flag is not given.
std::string absolute_init_from(const std::string& init_from);

// Reads ds_config.json, the model's config.json and the sizes of the data sets. Throws UserError for whatever its user
// should change. Every rank gets the same result.
RunSetup set_up_run(const CommandLine& command_line, int world_size, DataFiles data_files = DataFiles::kMustExist);
// The same with what find_init_from() has found on rank 0.
RunSetup set_up_run(const CommandLine& command_line, const io::InitialFolder& init, int world_size,
                    DataFiles data_files = DataFiles::kMustExist);

}  // namespace mpzero
