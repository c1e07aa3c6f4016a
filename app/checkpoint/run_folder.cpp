#include "app/checkpoint/run_folder.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <set>
#include <string_view>
#include <system_error>

#include "app/config/run_setup.hpp"
#include "base/collectives.hpp"
#include "base/error.hpp"
#include "io/checkpoint_dir/folder.hpp"
#include "io/checkpoint_dir/old_run.hpp"
#include "io/files/atomic_file.hpp"

namespace mpzero {
namespace fs = std::filesystem;
namespace {

bool same_folder(const fs::path& a, const fs::path& b) {
  std::error_code error;
  return fs::equivalent(a.empty() ? "." : a, b.empty() ? "." : b, error) && !error;
}

// Returns true if `checkpoint` is in `folder`. Resolves symbolic links and accepts any spelling of the path, e.g.
// "tiny-4steps/". `entries`: the checkpoints of `folder`, which may be links themselves.
bool is_in(const fs::path& checkpoint, const fs::path& folder, const std::vector<io::CatalogEntry>& entries) {
  std::error_code error;
  const fs::path path = fs::weakly_canonical(checkpoint, error);
  const fs::path last = path.has_filename() ? path : path.parent_path();
  return (!error && same_folder(last.parent_path(), folder)) ||
         std::any_of(entries.begin(), entries.end(),
                     [&](const io::CatalogEntry& entry) { return same_folder(entry.folder, checkpoint); });
}

// Returns true if a file in the checkpoint folder belongs to the run that saved the checkpoints.
bool belongs_to_run(const fs::path& file, const std::string& metrics_file) {
  const std::string name = file.filename().string();
  const std::string extension = file.extension().string();
  return name == fs::path(metrics_file).filename() || name == "metrics.jsonl" || name == "failure.json" ||
         name == "stop.json" || name == "events.jsonl" || name == "node.jsonl" || name == "summary.json" ||
         name == "report.html" || extension == ".png" || extension == ".svg" || extension == ".pdf" ||
         (name.starts_with("trace-rank") && extension == ".json");
}

// Formats tags as "tiny-9steps" or "tiny-9steps and 2 more".
std::string show_tags(const std::vector<io::CatalogEntry>& entries) {
  const std::string& first = entries.front().tag;
  return entries.size() == 1 ? first : fmt::format("{} and {} more", first, entries.size() - 1);
}

std::string show_runs(const std::vector<io::CatalogEntry>& entries) {
  std::set<std::string> runs;
  for (const io::CatalogEntry& entry : entries) {
    runs.insert(entry.run_id ? io::show_run(*entry.run_id) : "an unknown run");
  }
  return fmt::to_string(fmt::join(runs, ", "));
}

// Returns the files that are moved if all checkpoints of the folder are moved.
std::vector<std::string> files_of_run(const fs::path& folder, const std::string& metrics_file) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (entry.is_regular_file() && belongs_to_run(entry.path(), metrics_file)) {
      names.push_back(entry.path().filename().string());
    }
  }
  std::sort(names.begin(), names.end());
  return names;
}

// Returns the conflicting checkpoints of other runs among `entries`, the checkpoints in the folder.
std::vector<io::CatalogEntry> in_the_way(std::vector<io::CatalogEntry> entries, const RunConfig& config,
                                         const io::RunRecord& run, const std::optional<Resumed>& resumed) {
  if (!resumed) return entries;
  const bool from_here = is_in(resumed->checkpoint, config.checkpoint_dir, entries);
  std::erase_if(entries, [&](const io::CatalogEntry& entry) {
    if (entry.run_id == run.id) return true;
    if (!from_here) return false;
    // This run started from a checkpoint without an id. A damaged checkpoint may also belong to this run.
    if (!entry.run_id || entry.run_id->empty()) return true;
    return io::step_of_tag(entry.tag, config.model_type).value_or(0) <= resumed->position.step;
  });
  return entries;
}

// Throws UserError if --overwrite would move the weights of --init_from. A restart of the same command would not find
// the weights, or would find different weights under the same name.
void check_init_from_stays(const RunConfig& config, const std::vector<io::CatalogEntry>& to_move) {
  if (!starts_from_any_of(config, to_move)) return;
  const fs::path folder = config.checkpoint_dir;
  throw_user_error(
      "--init_from {}: --overwrite would move these weights to {}, where a restart would not find them; use a "
      "different --checkpoint_dir, or weights in an old-<n> folder of {}, which --overwrite does not move",
      config.init_adapters.empty() ? config.init_from : config.init_adapters,
      (folder / io::next_old_name(folder)).string(), folder.string());
}

}  // namespace

bool starts_from_any_of(const RunConfig& config, const std::vector<io::CatalogEntry>& entries) {
  for (const std::string& given : {config.init_from, config.init_adapters}) {
    if (given.empty()) continue;
    std::error_code error;
    const fs::path path = fs::weakly_canonical(fs::absolute(given, error), error);
    if (error) continue;
    // The weights may be in a subfolder of a checkpoint.
    for (fs::path above = path; above.has_relative_path(); above = above.parent_path()) {
      const auto is_above = [&](const io::CatalogEntry& entry) { return same_folder(entry.folder, above); };
      if (std::any_of(entries.begin(), entries.end(), is_above)) return true;
    }
  }
  return false;
}

std::string recorded_init_from(const RunConfig& config) { return absolute_init_from(config.init_from); }

void RunFolder::open() {
  std::string finished;
  run_on_all_ranks(group_, [&] {
    if (group_.rank() != 0) return;
    std::error_code error;
    for (fs::path path = fs::path(config_.checkpoint_dir) / io::FolderLock::kFile; !path.empty();
         path = path.parent_path()) {
      if (fs::exists(path, error) || error) break;
      created_.push_back(path);
    }
    io::check_writable(config_.checkpoint_dir);
    const char* job = std::getenv("SLURM_JOB_ID");
    const char* restart = std::getenv("SLURM_RESTART_COUNT");
    const bool requeued = restart != nullptr && std::string_view(restart) != "0";
    lock_.emplace(
        config_.checkpoint_dir,
        io::FolderLock::Options{
            .job = job == nullptr ? "" : job,
            .patience_with_predecessor = requeued ? io::FolderLock::kPatienceWithPredecessor : std::chrono::minutes(0),
            .say = [this](const std::string& line) { log_.say(line); },
            .warn = [this](const std::string& line) { log_.warn(line); }});
    // Remove the previous attempt's file, since a job may restart its ranks without being requeued.
    fs::remove(fs::path(config_.checkpoint_dir) / "stop.json");
    for (const fs::path& folder : io::finish_moving(config_.checkpoint_dir)) finished = folder.string();
    name_leftovers(io::clean_up(config_.checkpoint_dir).left);
  });
  if (!finished.empty()) {
    log_.warn(fmt::format("completed an interrupted --overwrite; the moved files are in {}.", finished));
  }
}

RunFolder::~RunFolder() {
  if (created_.empty()) return;
  try {
    if (lock_) lock_->remove();
  } catch (const Error&) {  // NOLINT(bugprone-empty-catch): the error that ends the run is already reported
  }
  std::error_code ignored;
  // Folders with other files remain. Another run may have created its own lock file.
  for (auto folder = created_.begin() + 1; folder != created_.end(); ++folder) fs::remove(*folder, ignored);
}

io::RunRecord RunFolder::identify(const std::optional<Resumed>& resumed) {
  io::RunRecord run = resumed ? resumed->run : io::RunRecord{};
  if (run.id.empty()) {
    run = {.id = io::new_run_id(),
           .init_from = recorded_init_from(config_),
           .init_adapters = absolute_init_from(config_.init_adapters)};
  }
  run.id = broadcast(group_, run.id);
  if (lock_) lock_->set_run(run.id);
  return run;
}

std::vector<std::string> RunFolder::new_problems(const std::vector<io::Leftover>& found) {
  std::vector<std::string> problems;
  for (const io::Leftover& leftover : found) {
    if (named_.insert(leftover.path.string()).second) problems.push_back(leftover.problem);
  }
  return problems;
}

void RunFolder::stop_where_taken() {
  run_on_all_ranks(group_, [this] {
    if (group_.rank() != 0) return;
    try {
      check_owner();
    } catch (const io::FolderTaken&) {
      throw;
    } catch (const Error&) {  // NOLINT(bugprone-empty-catch): the error of the save is already reported
    }
  });
}

void RunFolder::name_leftovers(const std::vector<io::Leftover>& left) {
  const std::vector<std::string> problems = new_problems(left);
  if (problems.empty()) return;
  log_.warn(
      fmt::format("{} contains leftover files from earlier saves: {}. These files are not used and can be deleted.",
                  config_.checkpoint_dir, fmt::join(problems, "; ")));
}

void RunFolder::name_unread(const std::vector<io::Leftover>& unread) {
  const std::vector<std::string> problems = new_problems(unread);
  if (problems.empty()) return;
  log_.warn(fmt::format("some checkpoints in {} cannot be read and may be newer than the checkpoints of this run: {}.",
                        config_.checkpoint_dir, fmt::join(problems, "; ")));
}

std::vector<io::CatalogEntry> checkpoints_to_move(const std::vector<io::CatalogEntry>& entries, const RunConfig& config,
                                                  const io::RunRecord& run, const std::optional<Resumed>& resumed) {
  std::vector<io::CatalogEntry> others = in_the_way(entries, config, run, resumed);
  if (config.overwrite) check_init_from_stays(config, others);
  if (others.empty() || config.overwrite) return others;
  const fs::path folder = config.checkpoint_dir;
  const std::string overwrite = starts_from_any_of(config, others)
                                    ? ""
                                    : fmt::format(", or --overwrite, which moves the other run to {}",
                                                  (folder / io::next_old_name(folder)).string());
  throw_user_error(
      "{} contains {} of another run ({}), but {}; {}use a different --checkpoint_dir{}", folder.string(),
      show_tags(others), show_runs(others),
      resumed ? fmt::format("this run ({}) resumes from {}", io::show_run(run.id), resumed->checkpoint.string())
              : std::string("this run starts from step 0"),
      resumed ? "omit --resume_from_checkpoint to continue that run, " : "", overwrite);
}

void RunFolder::warn_of_newer(const io::RunRecord& run, const Resumed& resumed) {
  const io::ResumeCandidates candidates = io::resume_candidates(config_.checkpoint_dir, config_.model_type);
  if (candidates.folders.empty() || candidates.run.id != run.id) return;
  const std::string tag = candidates.folders.front().filename().string();
  const int64_t newest = io::step_of_tag(tag, config_.model_type).value_or(0);
  if (newest <= resumed.position.step) return;
  log_.warn(fmt::format(
      "{} has a checkpoint of this run at step {}, but --resume_from_checkpoint selects step {}; to continue "
      "from the newest checkpoint, omit --resume_from_checkpoint.",
      config_.checkpoint_dir, newest, resumed.position.step));
}

void RunFolder::check(const io::RunRecord& run, const std::optional<Resumed>& resumed) {
  run_on_all_ranks(group_, [&] {
    if (group_.rank() != 0) return;
    const std::vector<io::CatalogEntry> entries = io::list_checkpoints(config_.checkpoint_dir);
    const std::vector<io::CatalogEntry> others = checkpoints_to_move(entries, config_, run, resumed);
    if (resumed && !config_.resume_from_checkpoint.empty()) warn_of_newer(run, *resumed);
    if (others.empty()) return;
    const fs::path folder = config_.checkpoint_dir;
    const bool all = others.size() == entries.size();
    std::optional<std::string> latest;
    if (!all) latest = io::latest_tag(folder);
    std::vector<std::string> tags;
    for (const io::CatalogEntry& entry : others) {
      tags.push_back(entry.folder.filename().string());
      if (entry.tag == latest) to_move_.emplace_back("latest");
    }
    if (all && fs::exists(fs::symlink_status(folder / "latest"))) to_move_.emplace_back("latest");
    // `latest` is moved first, so that it never refers to a missing checkpoint.
    to_move_.insert(to_move_.end(), tags.begin(), tags.end());
    if (!all) return;
    for (const std::string& name : files_of_run(folder, config_.metrics_file)) to_move_.push_back(name);
  });
}

void RunFolder::make_room() {
  std::string moved_to;
  run_on_all_ranks(group_, [&] {
    if (to_move_.empty()) return;
    lock_->check();
    moved_to = io::move_aside(config_.checkpoint_dir, to_move_).string();
  });
  if (moved_to.empty()) return;
  log_.say(fmt::format("Moved the other run's checkpoints to {}; resume that run with --checkpoint_dir {}", moved_to,
                       moved_to));
}

}  // namespace mpzero
