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

// The steps of a save. Between them the ranks must know of each other's success: save_checkpoint() waits at each step,
// BackgroundSave looks in from time to time.
namespace mpzero::io {

struct SaveJob {
  std::filesystem::path checkpoint_dir;
  std::string tag;
  TrainingProgress progress;
  std::vector<UnitShard> shards;  // this rank's; every rank lists every unit, in the model's order
  std::string model_type;         // of the checkpoints that keep_last counts
  int64_t keep_last = 0;          // of the run's; 0: all
  RunRecord run{};
  // 16 hexadecimal digits of this start of the run, the same on all ranks: its staging folder is no other start's.
  // Empty: the run's id serves.
  std::string start{};
  // Rank 0 calls it, from any thread, before it removes or replaces anything: throws where the folder is another run's
  // by now (FolderLock).
  std::function<void()> check_owner{};
  CheckpointFormat format{};                      // a number of ranks in it is that of the run
  std::shared_ptr<const CarriedState> carried{};  // by this rank between steps, besides its shards; null: nothing
};

// 1. Makes the folder that the checkpoint grows in. Collective: throws on all ranks if rank 0 could not, or where the
// checkpoint would replace another run's, or one that cannot be read and may be whole. Returns, on rank 0, what is left
// of earlier saves and could not be removed.
std::vector<Leftover> begin_save(const SaveJob& job, ProcessGroup& group, FileSystem& files = disk());

// 2. On every rank, from any thread: writes and syncs its file. Returns what publish_save needs to know of it.
std::string write_shards(const SaveJob& job, int rank, const ShardValues& values, const WriteOptions& options = {});

// 3. On rank 0, from any thread, when every rank's write_shards has returned; `shard_files` are their answers, by rank.
// Once it returns, `latest` names the new checkpoint and older ones are pruned.
struct Published {
  int64_t bytes = 0;             // of the whole checkpoint
  std::string remark;            // one sentence on what did not work and does no harm to the checkpoint; empty: nothing
  std::vector<Leftover> left;    // could not be removed
  std::vector<Leftover> unread;  // checkpoints whose age is not known: see next_generation
};
Published publish_save(const SaveJob& job, const std::vector<std::string>& shard_files, FileSystem& files = disk());

// Instead of publish_save, on rank 0: removes the written files. Never throws.
void discard_save(const SaveJob& job, FileSystem& files = disk()) noexcept;

// Runs steps 1 to 3 synchronously. Collective: throws on every rank if any rank could not; then `latest` and
// everything it names are as before. Returns rank 0's answer there.
Published save_checkpoint(const SaveJob& job, const ShardValues& values, ProcessGroup& group,
                          FileSystem& files = disk());

}  // namespace mpzero::io
