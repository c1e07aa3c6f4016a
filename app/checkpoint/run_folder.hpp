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

// Locks the checkpoint folder for a run and protects the files of other runs. All calls are collective unless noted.
// Only rank 0 accesses the folder, and its errors are thrown on all ranks.
class RunFolder {
 public:
  // The arguments must outlive this object.
  RunFolder(const RunConfig& config, ProcessGroup& group, StepLog& log) : config_(config), group_(group), log_(log) {}
  // Unless keep() was called, removes the folders and the lock file that open() created.
  ~RunFolder();
  RunFolder(const RunFolder&) = delete;
  RunFolder& operator=(const RunFolder&) = delete;

  // Creates the folder and locks it for the lifetime of this object. Completes an interrupted --overwrite move and
  // removes files left by interrupted saves.
  void open();
  // Returns the record of the resumed run, or a new record. All ranks return the same id.
  io::RunRecord identify(const std::optional<Resumed>& resumed);
  // Throws UserError if the folder contains conflicting checkpoints of other runs, unless --overwrite is set.
  void check(const io::RunRecord& run, const std::optional<Resumed>& resumed);
  // Moves the conflicting checkpoints of other runs, found by check(), to a subfolder. Must be called after all other
  // startup checks have passed.
  void make_room();
  // Must be called when the run starts to write files.
  void keep() { created_.clear(); }

  // Throws if another process has taken over the folder. Not collective. Must be called on rank 0, from any thread.
  void check_owner() { lock_->check(); }
  // Throws Failure on all ranks if another process has taken over the folder. Ignores all other errors of
  // check_owner().
  void stop_where_taken();
  // Warns once per path about files that could not be removed, or checkpoints that could not be read. Not collective.
  void name_leftovers(const std::vector<io::Leftover>& left);
  void name_unread(const std::vector<io::Leftover>& unread);

 private:
  // Warns if --resume_from_checkpoint selects a step before the run's newest checkpoint. Called only on rank 0.
  void warn_of_newer(const io::RunRecord& run, const Resumed& resumed);
  // Returns the problems that have not been reported yet, and marks them as reported.
  std::vector<std::string> new_problems(const std::vector<io::Leftover>& found);

  const RunConfig& config_;
  ProcessGroup& group_;
  StepLog& log_;
  // The lock and the following members are used only on rank 0.
  std::optional<io::FolderLock> lock_;
  std::vector<std::filesystem::path> created_;  // by open(): the lock file, then folders from the innermost
  std::vector<std::string> to_move_;
  std::set<std::string> named_;
};

// Returns the conflicting checkpoints of other runs among `entries`, the checkpoints in --checkpoint_dir, which
// --overwrite moves. Throws UserError if there are conflicting checkpoints and --overwrite is not set, or if
// --overwrite would move the weights of --init_from. Writes no files.
std::vector<io::CatalogEntry> checkpoints_to_move(const std::vector<io::CatalogEntry>& entries, const RunConfig& config,
                                                  const io::RunRecord& run, const std::optional<Resumed>& resumed);

// Returns true if the weights or adapters of --init_from are in one of the checkpoints `entries`.
bool starts_from_any_of(const RunConfig& config, const std::vector<io::CatalogEntry>& entries);

// Returns the absolute path of --init_from, as stored in RunRecord; empty if the flag is not set.
std::string recorded_init_from(const RunConfig& config);

}  // namespace mpzero
