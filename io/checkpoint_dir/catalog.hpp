#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "io/checkpoint/run_record.hpp"
#include "io/checkpoint_dir/folder.hpp"
#include "io/files/file_system.hpp"

// Lists the checkpoints in a folder with their runs and ages, and selects checkpoints to prune or resume from.
//
// Checkpoints are ordered by the generation in the manifest, which increases with each save. Steps do not define the
// order because a run may restart from an earlier step.
namespace mpzero::io {

// Total size and number of the files in a folder. Excludes files that other processes remove during the scan.
struct FilesInFolder {
  int64_t bytes = 0;
  int64_t count = 0;
};
FilesInFolder files_in(const std::filesystem::path& folder);

struct CatalogEntry {
  std::filesystem::path folder;
  std::string tag;
  std::optional<int64_t> step;  // from the tag
  int64_t generation = 0;       // see Manifest; 0 if the manifest cannot be read
  std::string saved_at;         // empty if the manifest cannot be read
  int64_t bytes = 0;            // total size of the files
  int64_t files = 0;
  // Reason why the checkpoint cannot be loaded, according to its manifest and file sizes: one sentence, or empty.
  std::string problem;
  // True if the checkpoint could not be read because of a system error or a newer format. An unreadable checkpoint may
  // be complete and may be the newest of any run, so it is not replaced, removed or skipped.
  bool may_be_complete = false;
  bool has_manifest = true;  // false if missing or unreadable
  // See RunRecord. std::nullopt if the manifest cannot be read.
  std::optional<std::string> run_id;
};

// Returns all checkpoints in `checkpoint_dir`, including damaged ones, newest first. Checkpoints without a generation
// are sorted by step. If `model_type` is set, returns only checkpoints with the tag "<model_type>-<N>steps".
std::vector<CatalogEntry> list_checkpoints(const std::filesystem::path& checkpoint_dir,
                                           const std::string& model_type = "");

// Returns the generation of the next save: the largest generation in `checkpoint_dir` plus 1. Adds unreadable
// checkpoints to `not_known` because their generations may be larger.
int64_t next_generation(const std::filesystem::path& checkpoint_dir, std::vector<Leftover>* not_known = nullptr);

// Returns the checkpoints that are older than the newest `keep_last` good checkpoints, except the target of `latest`
// and checkpoints of unknown age (unreadable or without a manifest). Returns an empty list if there are fewer than
// `keep_last` good checkpoints. Calls `is_good` only for checkpoints without a known problem.
std::vector<std::filesystem::path> checkpoints_to_prune(const std::filesystem::path& checkpoint_dir,
                                                        const std::vector<CatalogEntry>& newest_first,
                                                        int64_t keep_last,
                                                        const std::function<bool(const CatalogEntry&)>& is_good);

// Removes all but the newest `keep_last` complete checkpoints of a run, or no checkpoints if `keep_last` is 0. Never
// removes the target of `latest`. Ignores unreadable checkpoints and checkpoints of other runs, including checkpoints
// without a run id if the run has an id. Returns the folders that could not be removed. Must be called only on rank 0.
std::vector<Leftover> prune_checkpoints(const std::filesystem::path& checkpoint_dir, const std::string& model_type,
                                        const std::string& run_id, int64_t keep_last, FileSystem& files = disk());

// Candidates for resuming, in order of preference: the target of `latest`, then the other checkpoints of the same run,
// newest first.
//
// All checkpoints without a run id are assumed to belong to one run. Checkpoints without a run id that are older than
// the first checkpoint of a run with an id belong to that run, because DeepSpeed or an older version of mpzero started
// it. Excludes checkpoints of steps that the run has since repeated: if step 40 was saved after step 100, the run does
// not resume from step 100. An unreadable checkpoint that may be complete follows `latest` in the list because it may
// be the newest.
struct ResumeCandidates {
  std::vector<std::filesystem::path> folders;
  RunRecord run;                      // run of the candidates; its id may be empty
  std::vector<std::string> left_out;  // excluded checkpoints with the reason: "tiny-9steps (run 1a2b3c4d)"
  // Problem with `latest` in one sentence, or empty.
  std::string problem_of_latest;
  // Reason why the run that saved the target of `latest` is unknown: one sentence, or empty. If set, `run` is the run
  // of the newest save, and `newest_of_runs` contains the newest checkpoint of each run in the folder.
  std::string problem_of_run;
  std::vector<CatalogEntry> newest_of_runs;
};
// Returns empty `folders` if `checkpoint_dir` contains neither checkpoints nor `latest`.
ResumeCandidates resume_candidates(const std::filesystem::path& checkpoint_dir, const std::string& model_type);

}  // namespace mpzero::io
