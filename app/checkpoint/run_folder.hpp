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

// A run's hold on its checkpoint folder: no other run is at work there, and what other runs have left there is neither
// replaced nor mixed with its own. Each call is collective; rank 0 acts for all, and its errors are thrown on all.
class RunFolder {
 public:
  // Both outlive it.
  RunFolder(const RunConfig& config, ProcessGroup& group, StepLog& log) : config_(config), group_(group), log_(log) {}

  // Makes the folder, locks it for as long as this lives, ends a move that a crash has interrupted, and removes what
  // crashed saves have left.
  void open();
  // The run that starts: that of the checkpoint it resumes from, or a new one, with an id that all ranks know.
  io::RunRecord identify(const std::optional<Resumed>& resumed);
  // Throws UserError where checkpoints of other runs are in the way, unless --overwrite moves them.
  void check(const io::RunRecord& run, const std::optional<Resumed>& resumed);
  // Moves what is in the way, once nothing else keeps the run from starting.
  void make_room();

  // On rank 0, from any thread: throws where another process has taken the folder over.
  void check_owner() { lock_->check(); }
  // Collective: throws Failure on all ranks where another process has taken the folder over. What else keeps rank 0
  // from finding that out is no reason to stop.
  void stop_where_taken();
  // Not collective: warns, once for each, of what could not be removed, and of checkpoints that could not be read.
  void name_leftovers(const std::vector<io::Leftover>& left);
  void name_unread(const std::vector<io::Leftover>& unread);

 private:
  // Of these those that have not been named; they are now.
  std::vector<std::string> new_problems(const std::vector<io::Leftover>& found);

  const RunConfig& config_;
  ProcessGroup& group_;
  StepLog& log_;
  // On rank 0.
  std::optional<io::FolderLock> lock_;
  std::vector<std::string> to_move_;
  std::set<std::string> named_;
};

// The checkpoints in --checkpoint_dir that are not of `run`, and that it would replace or be mixed up with. Throws
// UserError where there are some, unless --overwrite moves them, and where it would move the weights of --init_from.
// Reads only.
std::vector<io::CatalogEntry> checkpoints_to_move(const RunConfig& config, const io::RunRecord& run,
                                                  const std::optional<Resumed>& resumed);

// Whether the weights or adapters of --init_from are one of these checkpoints, or in the folder of one.
bool starts_from_any_of(const RunConfig& config, const std::vector<io::CatalogEntry>& entries);

// As a RunRecord has it: the absolute path of --init_from; empty where the flag is not given.
std::string recorded_init_from(const RunConfig& config);

}  // namespace mpzero
