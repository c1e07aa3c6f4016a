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

// The two kinds of HDF5 files in a checkpoint.
//
// An optimizer file holds a group for each unit, with the attributes `begin` and `count` and the one-dimensional float
// data sets `master`, `exp_avg` and `exp_avg_sq`. HDF5 creates the file in memory, where it takes a few KiB without the
// values. Then structure and values are written to the disk sequentially.
namespace mpzero::io {

// Returns a rank's values of one kind of one of its shards.
using FetchShard = std::function<std::span<const float>(size_t shard, StateKind kind)>;

struct ShardValues {
  FetchShard fetch;
  // Whether all spans that `fetch` returns stay valid; otherwise each is valid until the next call. Memory aligned to
  // OutputFile::kAlignment is written without a copy.
  bool all_stay = false;
  // If set, called once `fetch` is no longer called and its spans are no longer read, whether writing succeeded or not.
  // BackgroundSave calls it from the writing thread.
  // NOLINTNEXTLINE(readability-redundant-member-init): gcc wants one, or each designated initializer to name it
  std::function<void()> done{};
};

struct WriteOptions {
  FileSystem* files = &disk();
  // NOLINTNEXTLINE(readability-redundant-member-init): gcc wants one, or each designated initializer to name it
  std::stop_token stop{};     // writing soon throws Failure once it is requested
  WritePace* pace = nullptr;  // null: unlimited
};

// Writes and syncs `folder/name`. Shards without elements are left out. If there are no others, no file is written and
// the returned name is empty.
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
