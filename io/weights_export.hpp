#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "io/checkpoint.hpp"
#include "io/safetensors.hpp"

namespace mpzero::io {

enum class WeightsFormat {
  kSafetensors,  // as write_safetensors names the files; transformers loads the folder
  kHdf5,         // model.h5 with one float data set for each parameter, under its name
};

struct ExportOptions {
  WeightsFormat format = WeightsFormat::kSafetensors;
  int64_t max_shard_bytes = 5'000'000'000;  // safetensors only
  OnWritten on_written;
};

// Writes the fp32 master weights of a checkpoint and the model's config.json into `output`, which is made if need be.
// An export of the same format that lies there already is replaced, other files stay. Everything is written and synced
// in a folder beside the final names first, and config.json, without which nothing loads the folder, is put in place
// last: what loads is whole. Returns the names of the files.
std::vector<std::string> export_weights(const CheckpointReader& checkpoint, const std::filesystem::path& output,
                                        const ExportOptions& options);

// The checkpoint's config.json as it describes the exported weights: fp32, its head tied or not and its vocabulary as
// long as in the checkpoint, whatever the run's command line changed.
std::string exported_config(const CheckpointReader& checkpoint);

}  // namespace mpzero::io
