#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "io/checkpoint/checkpoint.hpp"
#include "io/checkpoint/checkpoint_writer.hpp"
#include "io/checkpoint/manifest.hpp"

// The two kinds of HDF5 files in a checkpoint.
//
// An optimizer file holds a group for each unit, with the attributes `begin` and `count` and the one-dimensional float
// data sets `master`, `exp_avg` and `exp_avg_sq`. HDF5 creates the file in memory, where it takes a few KiB without the
// values. Then structure and values are written to the disk sequentially.
namespace mpzero::io {

// Writes and syncs `folder/name`. Shards without elements are left out; with none at all no file is written and the
// answer's name is empty.
ManifestFile write_optimizer_file(const std::filesystem::path& folder, const std::string& name,
                                  std::span<const UnitShard> shards, const ShardValues& values,
                                  const WriteOptions& options = {});

struct ModelStates {
  TrainingProgress progress;
  std::vector<UnitSpec> units;
};

ManifestFile write_model_states(const std::filesystem::path& folder, const ModelStates& states,
                                FileSystem& files = disk());
// Parses the bytes of a model file. `file` is used in messages.
ModelStates read_model_states(const std::filesystem::path& file, std::span<const std::byte> bytes);

}  // namespace mpzero::io
