#pragma once

#include <optional>
#include <set>
#include <string>
#include <vector>

#include "app/checkpoint/resume.hpp"
#include "app/config/run_config.hpp"
#include "app/log/step_log.hpp"
#include "base/process_group.hpp"
#include "io/checkpoint/run_record.hpp"
#include "io/checkpoint_dir/catalog.hpp"
#include "io/locks/folder_lock.hpp"

namespace mpzero {

// A run's exclusive use of its checkpoint folder: no other run works there, and files of other runs are neither
// replaced nor mixed with its own. Each call is collective; rank 0 acts for all, and its errors are thrown on all.
class RunFolder {
 public:
  // The arguments must outlive it.
  RunFolder(const RunConfig& config, ProcessGroup& group, StepLog& log) : config_(config), group_(group), log_(log) {}

  // Creates the folder, locks it for the lifetime of this object, completes a move that a crash interrupted, and
  // removes leftovers of crashed saves.
  void open();
  // The starting run: the run of the checkpoint that it resumes from, or a new one. All ranks get the same id.
  io::RunRecord identify(const std::optional<Resumed>& resumed);
  // Throws UserError if checkpoints of other runs are in the way, unless --overwrite moves them.
  void check(const io::RunRecord& run, const std::optional<Resumed>& resumed);
  // Moves checkpoints that are in the way, once nothing else prevents the start.
  void make_room();

  // On rank 0, from any thread: throws if another process has taken over the folder.
  void check_owner() { lock_->check(); }
  // Collective: throws Failure on all ranks if another process has taken over the folder. Ignores other errors of this
  // check on rank 0.
  void stop_where_taken();
  // Not collective: warns, once per path, about files that could not be removed and checkpoints that could not be read.
  void name_leftovers(const std::vector<io::Leftover>& left);
  void name_unread(const std::vector<io::Leftover>& unread);

 private:
  // The problems not reported before; marks them as reported.
  std::vector<std::string> new_problems(const std::vector<io::Leftover>& found);

  const RunConfig& config_;
  ProcessGroup& group_;
  StepLog& log_;
  // On rank 0.
  std::optional<io::FolderLock> lock_;
  std::vector<std::string> to_move_;
  std::set<std::string> named_;
};

// The checkpoints of other runs in --checkpoint_dir that `run` would overwrite or mix with its own. Throws UserError if
// there are any, unless --overwrite moves them, or if it would move the weights of --init_from. Read-only.
std::vector<io::CatalogEntry> checkpoints_to_move(const RunConfig& config, const io::RunRecord& run,
                                                  const std::optional<Resumed>& resumed);

// Whether the weights or adapters of --init_from are one of these checkpoints, or in a folder of one.
bool starts_from_any_of(const RunConfig& config, const std::vector<io::CatalogEntry>& entries);

// The absolute path of --init_from, as in RunRecord; empty without the flag.
std::string recorded_init_from(const RunConfig& config);

}  // namespace mpzero
