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

// The three steps of a save. Each step requires that all ranks have completed the previous step. save_checkpoint()
// waits for all ranks, and BackgroundSave polls.
namespace mpzero::io {

struct SaveJob {
  std::filesystem::path checkpoint_dir;
  std::string tag;
  TrainingProgress progress;
  std::vector<UnitShard> shards;  // this rank's shard of every unit, in the model's order
  std::string model_type;         // prefix of the tags that keep_last applies to
  int64_t keep_last = 0;          // number of the run's checkpoints to keep, 0 for all
  RunRecord run{};
  // Identifies this attempt of the run by 16 hexadecimal digits, identical on all ranks, so that each attempt uses its
  // own staging folder. If `start` is empty, the run's id is used.
  std::string start{};
  // Called on rank 0, from any thread, before files are removed. Must throw if another run owns the folder.
  std::function<void()> check_owner{};
  CheckpointFormat format{};                      // DeepSpeedSettings::ranks must match the run
  std::shared_ptr<const CarriedState> carried{};  // carried state of this rank, or null
};

// Step 1: creates the staging folder. Throws on all ranks if rank 0 fails, or if the save would replace a checkpoint of
// another run or an unreadable checkpoint that may be complete. Returns, on rank 0, the folders of earlier saves that
// could not be removed. Collective.
std::vector<Leftover> begin_save(const SaveJob& job, ProcessGroup& group, FileSystem& files = disk());

// Step 2: writes and syncs this rank's shards. Called on every rank, from any thread. Returns a description of the
// shards for publish_save().
std::string write_shards(const SaveJob& job, int rank, const ShardValues& values, const WriteOptions& options = {});

// Step 3: publishes the checkpoint, updates `latest` and prunes older checkpoints. Called on rank 0, from any thread,
// after write_shards() has returned on every rank. `shard_files` contains the results of write_shards(), indexed by
// rank.
struct Published {
  int64_t bytes = 0;             // size of the checkpoint
  std::string remark;            // one sentence about a problem that does not affect the checkpoint, or empty
  std::vector<Leftover> left;    // folders of earlier saves that could not be removed
  std::vector<Leftover> unread;  // checkpoints of unknown age; see next_generation()
};
Published publish_save(const SaveJob& job, const std::vector<std::string>& shard_files, FileSystem& files = disk());

// Removes the files that a save has written. Called on rank 0 instead of publish_save(). Never throws.
void discard_save(const SaveJob& job, FileSystem& files = disk()) noexcept;

// Runs steps 1 to 3 synchronously. If any rank fails, throws on every rank and leaves `latest` and its target
// unchanged. Returns an empty result on all ranks except rank 0. Collective.
Published save_checkpoint(const SaveJob& job, const ShardValues& values, ProcessGroup& group,
                          FileSystem& files = disk());

}  // namespace mpzero::io
