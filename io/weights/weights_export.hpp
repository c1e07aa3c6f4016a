#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "io/checkpoint/stored_checkpoint.hpp"
#include "io/weights/parameter_stream.hpp"

namespace mpzero::io {

enum class WeightsFormat {
  kSafetensors,  // as write_safetensors names the files; transformers loads the folder
  kTorch,        // as write_torch_weights does; torch.load reads the files, transformers the folder
  kHdf5,         // model.h5 with one float data set for each parameter, under its name
};

struct ExportOptions {
  WeightsFormat format = WeightsFormat::kSafetensors;
  WeightType type = WeightType::kFloat32;   // kHdf5: fp32 only
  int64_t max_shard_bytes = 5'000'000'000;  // not of kHdf5
  std::string model_config_json;            // instead of the checkpoint's own; empty: that
  OnWritten on_written;
  std::function<void(const std::string&)> on_warning;  // of one sentence
};

struct Exported {
  std::vector<std::string> files;     // the names of those that were written
  std::vector<std::string> replaced;  // of those that a former export, of any format, had there
};

// Writes the fp32 master weights of a checkpoint and, where it is known, the model's config.json into `output`, which
// is made if need be. An export of any format that lies there already is replaced, other files stay: ExportFolder
// (io/weights/export_folder.hpp) says how, and what loads after a crash. Throws UserError where another conversion
// writes into the folder or the disk has not the room.
Exported export_weights(const StoredCheckpoint& checkpoint, const std::filesystem::path& output,
                        const ExportOptions& options, FileSystem& files = disk());

// config.json as it describes the exported weights: their type, the head tied or not and the vocabulary as long as in
// the checkpoint, whatever the run's command line changed. Empty if neither the options nor the checkpoint have one.
std::string exported_config(const StoredCheckpoint& checkpoint, const ExportOptions& options);

}  // namespace mpzero::io
