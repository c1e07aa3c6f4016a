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
  kSafetensors,  // see write_safetensors(); loadable with transformers
  kTorch,        // see write_torch_weights(); loadable with torch.load and transformers
  kHdf5,         // model.h5 with one float dataset per parameter
};

struct ExportOptions {
  WeightsFormat format = WeightsFormat::kSafetensors;
  WeightType type = WeightType::kFloat32;   // must be fp32 for kHdf5
  int64_t max_shard_bytes = 5'000'000'000;  // ignored for kHdf5
  std::string model_config_json;            // overrides the config.json of the checkpoint if not empty
  std::vector<int64_t> eos_token_ids;       // in addition to the ids in config.json
  std::optional<int64_t> bos_token_id;      // used if config.json has no bos_token_id
  std::string tokenizer;                    // recorded in config.json unless empty
  // Returns the transformers class for a model_type, for example "Qwen3ForCausalLM". Called if config.json has no
  // "architectures". If the function is not set or returns an empty string, "architectures" is omitted.
  std::function<std::string(const std::string& model_type)> causal_lm_class;
  OnWritten on_written;
};

struct Exported {
  std::vector<std::string> files;     // names of the written files
  std::vector<std::string> replaced;  // names of the files of the replaced export, in any format
};

// Writes the fp32 master weights of a checkpoint and, if known, the model's config.json to `output`. Creates the folder
// if necessary. Replaces an existing export of any format and keeps other files. See ExportFolder
// (io/weights/export_folder.hpp) for crash safety. Throws UserError if another conversion is using the folder or disk
// space is insufficient.
Exported export_weights(const StoredCheckpoint& checkpoint, const std::filesystem::path& output,
                        const ExportOptions& options, FileSystem& files = disk());

// Returns config.json for the exported weights, or an empty string if neither the options nor the checkpoint contain a
// config.json. Sets the dtype, tie_word_embeddings, the vocabulary size, settings from the run's command line, and the
// BOS and EOS ids.
std::string exported_config(const StoredCheckpoint& checkpoint, const ExportOptions& options);

}  // namespace mpzero::io
