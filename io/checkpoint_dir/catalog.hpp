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

// Lists the checkpoints in a folder: which run saved each, which is newer, and which may be removed.
//
// The newest checkpoint is the one that was saved last, according to the generation in its manifest. The steps in the
// names do not determine it, for example if a run was started over in the folder of a longer one.
namespace mpzero::io {

// The files in a folder. Files that other processes remove in the meantime are left out.
struct FilesInFolder {
  int64_t bytes = 0;
  int64_t count = 0;
};
FilesInFolder files_in(const std::filesystem::path& folder);

struct CatalogEntry {
  std::filesystem::path folder;
  std::string tag;
  std::optional<int64_t> step;  // from the tag
  int64_t generation = 0;       // see Manifest; also 0 if the manifest cannot be read
  std::string saved_at;         // empty if the manifest cannot be read
  int64_t bytes = 0;            // total size of its files
  int64_t files = 0;
  // Why it cannot be loaded, according to manifest and file sizes: one sentence. Empty: no problem.
  std::string problem;
  // The problem is not damage: a system error, or a format newer than this mpzero's, prevented reading it. It may be
  // complete, of any run, and newer than any other, so it is not replaced, removed or skipped.
  bool may_be_complete = false;
  bool has_manifest = true;  // a readable one
  // See RunRecord. std::nullopt if the manifest, which records it, cannot be read.
  std::optional<std::string> run_id;
};

// All checkpoints in `checkpoint_dir`, including damaged ones, newest first. Formats older than generations are sorted
// by step. With `model_type` only those tagged "<model_type>-<N>steps".
std::vector<CatalogEntry> list_checkpoints(const std::filesystem::path& checkpoint_dir,
                                           const std::string& model_type = "");

// The generation of the next save into `checkpoint_dir`: one more than the largest there. Unreadable checkpoints are
// added to `not_known`: their generations are unknown and may be larger.
int64_t next_generation(const std::filesystem::path& checkpoint_dir, std::vector<Leftover>* not_known = nullptr);

// The checkpoints to remove to keep the newest `keep_last` good ones: all older ones, good or not, except the one that
// `latest` names and those of unknown age (unreadable, or without a manifest). Empty while fewer than `keep_last` are
// good. `is_good` is called for checkpoints without a problem.
std::vector<std::filesystem::path> checkpoints_to_prune(const std::filesystem::path& checkpoint_dir,
                                                        const std::vector<CatalogEntry>& newest_first,
                                                        int64_t keep_last,
                                                        const std::function<bool(const CatalogEntry&)>& is_good);

// Removes all but the newest `keep_last` checkpoints of a run in `checkpoint_dir` (never the one `latest` names). 0
// keeps all. The newest are those saved last, and only complete ones count. Checkpoints of other runs are neither
// counted nor removed; for a run with an id this includes checkpoints without an id. The same applies to unreadable
// checkpoints. Returns what could not be removed. Rank 0 only.
std::vector<Leftover> prune_checkpoints(const std::filesystem::path& checkpoint_dir, const std::string& model_type,
                                        const std::string& run_id, int64_t keep_last, FileSystem& files = disk());

// The checkpoints to resume from, best first: the one that `latest` names, then the others of the same run, newest
// first.
//
// Checkpoints without an id count as one run. Those older than a run's first checkpoint count as its own: an older
// mpzero, or DeepSpeed, started the run, since no run starts among another's checkpoints. Checkpoints saved before the
// run returned to an earlier step do not count: if step 40 was saved after step 100, the run does not resume from 100.
// An unreadable checkpoint that may be complete comes after `latest` and before all others: it may be the newest.
struct ResumeCandidates {
  std::vector<std::filesystem::path> folders;
  RunRecord run;                      // the run that they belong to; its id is empty if it has none
  std::vector<std::string> left_out;  // the other checkpoints, with the reason: "tiny-9steps (run 1a2b3c4d)"
  // The problem with `latest`, as a sentence. Empty: none.
  std::string problem_of_latest;
  // Why the run of the checkpoint that `latest` names is unknown, as a sentence. Empty: it is known. Otherwise `run` is
  // the one that saved last, and `newest_of_runs` has the newest checkpoint of each run in the folder.
  std::string problem_of_run;
  std::vector<CatalogEntry> newest_of_runs;
};
// `folders` is empty if `checkpoint_dir` holds no checkpoint and no `latest`.
ResumeCandidates resume_candidates(const std::filesystem::path& checkpoint_dir, const std::string& model_type);

}  // namespace mpzero::io
