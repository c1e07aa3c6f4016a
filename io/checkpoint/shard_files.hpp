#pragma once

#include <cstddef>
#include <filesystem>
#include <functional>
#include <span>
#include <stop_token>
#include <string>
#include <vector>

#include "io/checkpoint/checkpoint.hpp"
#include "io/checkpoint/manifest.hpp"
#include "io/files/write_pace.hpp"

// The two kinds of HDF5 files of a checkpoint.
//
// An optimizer file holds a group for each unit, with the attributes `begin` and `count`, and in it one-dimensional
// float data sets `master`, `exp_avg` and `exp_avg_sq`. HDF5 lays the file out in memory, where it has a few KiB
// without the values; then structure and values go to the disk from the file's beginning to its end.
namespace mpzero::io {

// A rank's values of one kind of one of its shards.
using FetchShard = std::function<std::span<const float>(size_t shard, StateKind kind)>;

struct ShardValues {
  FetchShard fetch;
  // Whether all spans that `fetch` yields stay valid; else each does until the next call. Memory at multiples of
  // OutputFile::kAlignment goes to the disk without a copy.
  bool all_stay = false;
  // Where set: called once `fetch` is not called and its spans are not read any more, whatever came of the writing.
  // BackgroundSave does, from the thread that writes.
  // NOLINTNEXTLINE(readability-redundant-member-init): gcc wants one, or each designated initializer to name it
  std::function<void()> done{};
};

struct WriteOptions {
  FileSystem* files = &disk();
  // NOLINTNEXTLINE(readability-redundant-member-init): gcc wants one, or each designated initializer to name it
  std::stop_token stop{};     // makes writing throw Failure soon
  WritePace* pace = nullptr;  // none: as fast as it goes
};

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
