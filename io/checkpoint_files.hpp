#pragma once

#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "io/checkpoint.hpp"
#include "io/checkpoint_manifest.hpp"

// The two kinds of HDF5 files of a checkpoint.
//
// An optimizer file holds a group for each unit, with the attributes `begin` and `count`, and in it one-dimensional
// float data sets `master`, `exp_avg` and `exp_avg_sq`. HDF5 lays the file out; the values go straight to the offsets
// that it gave them, by several threads, because the library itself would take them one call at a time.
namespace mpzero::io {

using FetchShard = std::function<std::span<const float>(size_t shard, StateKind kind)>;

// Writes and syncs `folder/name`. Shards without elements are left out; with none at all no file is written and the
// answer's name is empty.
ManifestFile write_optimizer_file(const std::filesystem::path& folder, const std::string& name,
                                  std::span<const UnitShard> shards, const FetchShard& fetch);

struct ModelStates {
  TrainingProgress progress;
  std::vector<UnitSpec> units;
};

ManifestFile write_model_states(const std::filesystem::path& folder, const ModelStates& states);
ModelStates read_model_states(const std::filesystem::path& file);

}  // namespace mpzero::io
