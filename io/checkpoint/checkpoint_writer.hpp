#pragma once

#include <filesystem>
#include <functional>
#include <span>
#include <stop_token>
#include <string>
#include <vector>

#include "base/parameter_spec.hpp"
#include "io/checkpoint/manifest.hpp"
#include "io/files/file_system.hpp"
#include "io/files/write_pace.hpp"

namespace mpzero::io {

// Returns a rank's values of one kind for one of its shards.
using FetchShard = std::function<std::span<const float>(size_t shard, StateKind kind)>;

struct ShardValues {
  FetchShard fetch;
  // Whether all spans that `fetch` returns stay valid; otherwise each is valid until the next call. Memory aligned to
  // OutputFile::kAlignment is written without a copy.
  bool all_stay = false;
  // If set: called after the last call of `fetch` and the last read of its spans, also after an error. BackgroundSave
  // calls it from the writing thread.
  // NOLINTNEXTLINE(readability-redundant-member-init): gcc wants one, or each designated initializer to name it
  std::function<void()> done{};
};

struct WriteOptions {
  FileSystem* files = &disk();
  // NOLINTNEXTLINE(readability-redundant-member-init): gcc wants one, or each designated initializer to name it
  std::stop_token stop{};     // once requested, writing soon throws Failure
  WritePace* pace = nullptr;  // null: unlimited
};

// Writes the files of one checkpoint in one format, except the manifest. Every rank creates a writer for the same
// checkpoint, with its own shards.
class CheckpointWriter {
 public:
  virtual ~CheckpointWriter() = default;

  // On every rank, from any thread: writes and syncs the rank's shards in `folder`, which is empty before the first
  // rank begins. Returns a format-specific description of them for finish().
  virtual std::string write_shards(const std::filesystem::path& folder, int rank, const ShardValues& values,
                                   const WriteOptions& options) const = 0;
  // On rank 0, after write_shards() has returned on every rank: writes and syncs the other files. `written`: the values
  // that write_shards() returned, by rank. Returns the manifest's entries. Throws Failure unless the ranks have written
  // every value exactly once.
  virtual std::vector<ManifestFile> finish(const std::filesystem::path& folder, std::span<const std::string> written,
                                           FileSystem& files) const = 0;
};

}  // namespace mpzero::io
