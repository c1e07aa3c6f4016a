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

// Returns the values of one kind of state for one shard of this rank.
using FetchShard = std::function<std::span<const float>(size_t shard, StateKind kind)>;

struct ShardValues {
  FetchShard fetch;
  // True if all spans that `fetch` returns stay valid. Otherwise, each span is valid until the next call to `fetch`.
  // Values in memory aligned to OutputFile::kAlignment are written without a copy.
  bool all_stay = false;
  // If set, called after the last call to `fetch` and the last read of its spans, even after an error. BackgroundSave
  // calls `done` from the writing thread.
  // NOLINTNEXTLINE(readability-redundant-member-init): avoids gcc's -Wmissing-field-initializers
  std::function<void()> done{};
};

struct WriteOptions {
  FileSystem* files = &disk();
  // NOLINTNEXTLINE(readability-redundant-member-init): avoids gcc's -Wmissing-field-initializers
  std::stop_token stop{};     // after a stop request, writes throw Failure
  WritePace* pace = nullptr;  // unlimited if null
};

// Writes all files of a checkpoint except the manifest. Every rank creates a writer with its own shards.
class CheckpointWriter {
 public:
  virtual ~CheckpointWriter() = default;

  // Writes and syncs this rank's shards in `folder`, which must be empty before the first rank writes. Called on every
  // rank, from any thread. Returns a format-specific description of the shards for finish().
  virtual std::string write_shards(const std::filesystem::path& folder, int rank, const ShardValues& values,
                                   const WriteOptions& options) const = 0;
  // Writes and syncs the remaining files. Called on rank 0 after write_shards() has returned on every rank. `written`
  // contains the results of write_shards(), indexed by rank. Returns the manifest's entries. Throws Failure unless the
  // ranks have written every value exactly once.
  virtual std::vector<ManifestFile> finish(const std::filesystem::path& folder, std::span<const std::string> written,
                                           FileSystem& files) const = 0;
};

}  // namespace mpzero::io
