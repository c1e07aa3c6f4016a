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

// Which checkpoints a folder holds, of which run they are, which of them is newer, and which may go.
//
// The newest is the one that was saved last, which its manifest's generation says: the steps in the names do not, where
// a run was started anew in the folder of a longer one.
namespace mpzero::io {

// The files that lie in a folder; those that others remove meanwhile are left out.
struct FilesInFolder {
  int64_t bytes = 0;
  int64_t count = 0;
};
FilesInFolder files_in(const std::filesystem::path& folder);

struct CatalogEntry {
  std::filesystem::path folder;
  std::string tag;
  std::optional<int64_t> step;  // of the tag
  int64_t generation = 0;       // see Manifest; 0 where the manifest cannot be read, too
  std::string saved_at;         // likewise
  int64_t bytes = 0;            // of its files
  int64_t files = 0;
  // One sentence on what keeps it from being loaded, as far as manifest and sizes show; empty: nothing.
  std::string problem;
  // The problem is no damage: the system, or a format newer than this mpzero's, kept it from being read. It may be
  // whole, of any run, and newer than any other: it is not replaced, removed or passed over.
  bool may_be_whole = false;
  bool has_manifest = true;  // that can be read
  // See RunRecord; nothing where the manifest, which would say it, cannot be read.
  std::optional<std::string> run_id;
};

// All checkpoints of `checkpoint_dir`, damaged ones too, the newest first; of older formats than there are generations
// the highest step. With `model_type` only those tagged "<model_type>-<N>steps".
std::vector<CatalogEntry> list_checkpoints(const std::filesystem::path& checkpoint_dir,
                                           const std::string& model_type = "");

// What a save into `checkpoint_dir` bears: one more than all that are there. Those whose count is not known, because
// they cannot be read, go into `not_known`: one of them may count higher.
int64_t next_generation(const std::filesystem::path& checkpoint_dir, std::vector<Leftover>* not_known = nullptr);

// What is to be removed so that the newest `keep_last` good checkpoints stay: the older ones, good or not. Never what
// `latest` names, nor what has no manifest that tells its age or cannot be read. Nothing while fewer than `keep_last`
// are good. `is_good` decides about those without a problem.
std::vector<std::filesystem::path> checkpoints_to_prune(const std::filesystem::path& checkpoint_dir,
                                                        const std::vector<CatalogEntry>& newest_first,
                                                        int64_t keep_last,
                                                        const std::function<bool(const CatalogEntry&)>& is_good);

// Removes all but the newest `keep_last` checkpoints of a run in `checkpoint_dir` (never the one `latest` names); 0
// keeps all. The newest are those saved last, and only whole ones count. What another run has saved, or, for a run with
// an id, an mpzero from before there were ids, is neither counted nor removed, and neither is what cannot be read.
// Returns what could not be removed. Rank 0 only.
std::vector<Leftover> prune_checkpoints(const std::filesystem::path& checkpoint_dir, const std::string& model_type,
                                        const std::string& run_id, int64_t keep_last, FileSystem& files = disk());

// What a run goes on from, best first: what `latest` names, then the others of the same run, the newest first.
//
// Checkpoints without an id count as one run. Those that are older than a run's own first count as its own: an older
// mpzero, or DeepSpeed, began it, since no run begins among another's checkpoints. Those of steps that the run has gone
// back behind do not count: where step 40 was saved after step 100, the run does not go on from 100. One that may be
// whole although it cannot be read comes behind `latest`, before all others: it may be the newest.
struct ResumeCandidates {
  std::vector<std::filesystem::path> folders;
  RunRecord run;                      // that they belong to; its id is empty where it has none
  std::vector<std::string> left_out;  // which others there are, and why: "tiny-9steps (run 1a2b3c4d)"
  // What is wrong with `latest`, as a sentence; empty: nothing.
  std::string problem_of_latest;
  // Why it is not known which run the checkpoint that `latest` names is of, as a sentence; empty: it is known. Then
  // `run` is the one that saved last, and `newest_of_runs` has the newest checkpoint of each run that is there.
  std::string problem_of_run;
  std::vector<CatalogEntry> newest_of_runs;
};
// Nothing in `folders` if `checkpoint_dir` holds no checkpoint and no `latest`.
ResumeCandidates resume_candidates(const std::filesystem::path& checkpoint_dir, const std::string& model_type);

}  // namespace mpzero::io
