#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "io/checkpoint/stored_checkpoint.hpp"
#include "io/weights/parameter_stream.hpp"

namespace mpzero::io {

enum class WeightsFormat {
  kSafetensors,  // files as write_safetensors names them; transformers loads the folder
  kTorch,        // files as write_torch_weights names them; torch.load reads the files, transformers the folder
  kHdf5,         // model.h5 with one float dataset per parameter, under its name
};

struct ExportOptions {
  WeightsFormat format = WeightsFormat::kSafetensors;
  WeightType type = WeightType::kFloat32;   // kHdf5: fp32 only
  int64_t max_shard_bytes = 5'000'000'000;  // not used by kHdf5
  std::string model_config_json;            // replaces the checkpoint's own; empty: use the checkpoint's
  std::vector<int64_t> eos_token_ids;       // added to those of config.json
  std::optional<int64_t> bos_token_id;      // used if config.json has none
  // Returns the transformers class ("Qwen3ForCausalLM") for a model_type; called if config.json has no "architectures".
  // Not set, or an empty result: the key is omitted.
  std::function<std::string(const std::string& model_type)> causal_lm_class;
  OnWritten on_written;
  std::function<void(const std::string&)> on_warning;  // receives one sentence
};

struct Exported {
  std::vector<std::string> files;     // names of the written files
  std::vector<std::string> replaced;  // names of the files of a former export of any format
};

// Writes the fp32 master weights of a checkpoint and, if known, the model's config.json into `output`, which is created
// if needed. An existing export of any format is replaced, other files stay. ExportFolder
// (io/weights/export_folder.hpp) describes how, and which export loads after a crash. Throws UserError if another
// conversion writes into the folder or the disk has too little space.
Exported export_weights(const StoredCheckpoint& checkpoint, const std::filesystem::path& output,
                        const ExportOptions& options, FileSystem& files = disk());

// config.json for the exported weights: their dtype, whether the head is tied, the checkpoint's vocabulary size,
// whatever the run's command line changed, and the ids that begin and end its texts. Empty if neither the options nor
// the checkpoint has a config.json.
std::string exported_config(const StoredCheckpoint& checkpoint, const ExportOptions& options);

}  // namespace mpzero::io
