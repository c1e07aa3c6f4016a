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

// A rank's values of one kind of one of its shards.
using FetchShard = std::function<std::span<const float>(size_t shard, StateKind kind)>;

struct ShardValues {
  FetchShard fetch;
  // Whether all spans that `fetch` yields stay valid; else each does until the next call. Memory at multiples of
  // OutputFile::kAlignment goes to the disk without a copy.
  bool all_stay = false;
  // If set: called after the last call of `fetch` and the last read of its spans, also after an error.
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

// Writes the files of one checkpoint in one format, all but the manifest. Every rank makes one of the same checkpoint,
// with its own shards.
class CheckpointWriter {
 public:
  virtual ~CheckpointWriter() = default;

  // On every rank, from any thread: writes and syncs the rank's shards in `folder`, which is empty before the first
  // rank begins. Returns what finish() needs to know of them, in the format's own words.
  virtual std::string write_shards(const std::filesystem::path& folder, int rank, const ShardValues& values,
                                   const WriteOptions& options) const = 0;
  // On rank 0, when every rank's write_shards() has returned: writes and syncs the rest. `written`: their answers, by
  // rank. Returns the manifest's entries. Throws Failure unless the ranks have written every value exactly once.
  virtual std::vector<ManifestFile> finish(const std::filesystem::path& folder, std::span<const std::string> written,
                                           FileSystem& files) const = 0;
};

}  // namespace mpzero::io
