#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/process_group.hpp"
#include "io/checkpoint/carried_file.hpp"
#include "io/checkpoint/checkpoint.hpp"
#include "io/checkpoint/checkpoint_writer.hpp"
#include "io/checkpoint/run_record.hpp"
#include "io/checkpoint_dir/folder.hpp"
#include "io/checkpoint_dir/formats.hpp"

// The steps of a save. A step requires that all ranks have completed the previous one: save_checkpoint() waits for it,
// BackgroundSave polls.
namespace mpzero::io {

struct SaveJob {
  std::filesystem::path checkpoint_dir;
  std::string tag;
  TrainingProgress progress;
  std::vector<UnitShard> shards;  // this rank's; every rank lists every unit, in the model's order
  std::string model_type;         // of the checkpoints that keep_last counts
  int64_t keep_last = 0;          // number of the run's checkpoints to keep; 0: all
  RunRecord run{};
  // Identifies this start of the run, so that no other start uses its staging folder: 16 hexadecimal digits, the same
  // on all ranks. Empty: use the run's id.
  std::string start{};
  // Rank 0 calls it, from any thread, before it removes or replaces anything. Throws if another run has taken over the
  // folder (FolderLock).
  std::function<void()> check_owner{};
  CheckpointFormat format{};                      // its number of ranks, if any, is the run's
  std::shared_ptr<const CarriedState> carried{};  // this rank's carried state, besides its shards; null: none
};

// 1. Creates the staging folder. Collective: throws on all ranks if rank 0 cannot, or if the save would replace a
// checkpoint of another run, or an unreadable one that may be complete. Returns, on rank 0, leftovers of earlier saves
// that could not be removed.
std::vector<Leftover> begin_save(const SaveJob& job, ProcessGroup& group, FileSystem& files = disk());

// 2. On every rank, from any thread: writes and syncs its file. Returns a description of it for publish_save.
std::string write_shards(const SaveJob& job, int rank, const ShardValues& values, const WriteOptions& options = {});

// 3. On rank 0, from any thread, after write_shards has returned on every rank; `shard_files`: the values that it
// returned, by rank. Once publish_save returns, `latest` names the new checkpoint and older ones are pruned.
struct Published {
  int64_t bytes = 0;             // of the whole checkpoint
  std::string remark;            // one sentence on a problem that does not affect the checkpoint; empty: none
  std::vector<Leftover> left;    // could not be removed
  std::vector<Leftover> unread;  // checkpoints of unknown age: see next_generation
};
Published publish_save(const SaveJob& job, const std::vector<std::string>& shard_files, FileSystem& files = disk());

// Instead of publish_save, on rank 0: removes the written files. Never throws.
void discard_save(const SaveJob& job, FileSystem& files = disk()) noexcept;

// Runs steps 1 to 3 synchronously. Collective: throws on every rank if any rank fails; then `latest` and its checkpoint
// are unchanged. Only rank 0's result is set.
Published save_checkpoint(const SaveJob& job, const ShardValues& values, ProcessGroup& group,
                          FileSystem& files = disk());

}  // namespace mpzero::io
