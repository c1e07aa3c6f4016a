#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "io/checkpoint/checkpoint.hpp"
#include "io/checkpoint/checkpoint_writer.hpp"
#include "io/checkpoint/manifest.hpp"

// The two kinds of HDF5 files of a checkpoint.
//
// An optimizer file holds a group for each unit, with the attributes `begin` and `count`, and in it one-dimensional
// float data sets `master`, `exp_avg` and `exp_avg_sq`. HDF5 lays the file out in memory, where it has a few KiB
// without the values; then structure and values go to the disk from the file's beginning to its end.
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
// From the bytes of such a file; `file` is for messages.
ModelStates read_model_states(const std::filesystem::path& file, std::span<const std::byte> bytes);

}  // namespace mpzero::io
