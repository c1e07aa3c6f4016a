#include "io/checkpoint_dir/catalog.hpp"

#include <algorithm>
#include <limits>
#include <system_error>
#include <tuple>

#include "base/error.hpp"
#include "io/checkpoint/checkpoint.hpp"
#include "io/checkpoint/manifest.hpp"
#include "io/checkpoint_dir/folder.hpp"
#include "io/checkpoint_dir/formats.hpp"
#include "io/files/atomic_file.hpp"
#include "io/files/retry.hpp"

namespace mpzero::io {
namespace fs = std::filesystem;
namespace {

// Returns false if the folder is unreadable. Called for folders whose name is not a tag.
bool holds_checkpoint(const fs::path& folder) {
  try {
    return looks_like_checkpoint(folder);
  } catch (const Error&) {
    return false;
  }
}

// Fills `entry` field by field. Throws Error if a read fails; the remaining fields keep their defaults.
void read_entry(CatalogEntry& entry) {
  // DeepSpeed's own checkpoints have no manifest.
  if (!path_exists(entry.folder / kManifestName) && looks_like_checkpoint(entry.folder)) {
    entry.run_id = "";
    return;
  }
  const Manifest manifest = read_manifest(entry.folder);
  entry.generation = manifest.generation;
  entry.saved_at = manifest.saved_at;
  entry.run_id = manifest.run.id;
  entry.has_manifest = true;
  check_sizes(entry.folder, manifest);
}

CatalogEntry describe(const fs::path& folder, const std::string& tag) {
  CatalogEntry entry;
  entry.folder = folder;
  entry.tag = tag;
  entry.step = step_of_tag(tag, "");
  const FilesInFolder content = files_in(folder);
  entry.bytes = content.bytes;
  entry.files = content.count;
  entry.has_manifest = false;
  try {
    retry_reading([&] { read_entry(entry); });
  } catch (const Damaged& error) {
    entry.problem = error.what();
  } catch (const Error& error) {
    entry.problem = error.what();
    entry.may_be_complete = true;
  }
  return entry;
}

// Checkpoints without an id may belong to the run of a newer checkpoint. See ResumeCandidates.
std::vector<CatalogEntry> newest_of_runs(const std::vector<CatalogEntry>& newest_first) {
  std::vector<CatalogEntry> newest;
  for (const CatalogEntry& entry : newest_first) {
    if (!entry.run_id || (entry.run_id->empty() && !newest.empty())) continue;
    const bool is_known = std::any_of(newest.begin(), newest.end(),
                                      [&](const CatalogEntry& other) { return other.run_id == entry.run_id; });
    if (!is_known) newest.push_back(entry);
  }
  return newest;
}

// Returns the run of the target of `latest` or, if unknown, the run of the newest checkpoint with a known run.
RunRecord run_to_go_on(const std::optional<fs::path>& latest, const std::vector<CatalogEntry>& newest_first,
                       std::string& problem) {
  if (latest) {
    try {
      return run_of(*latest);
    } catch (const Damaged& error) {
      problem = error.what();
    } catch (const Error&) {  // NOLINT(bugprone-empty-catch): reported when resuming, since it is the first candidate
    }
  }
  for (const CatalogEntry& entry : newest_first) {
    if (entry.run_id) return run_of(entry.folder);
  }
  return {};
}

// Sorts all checkpoints except the target of `latest` into candidates and excluded checkpoints.
void add_others(const std::optional<fs::path>& latest, const std::vector<CatalogEntry>& newest_first,
                ResumeCandidates& candidates) {
  for (const CatalogEntry& entry : newest_first) {
    if (entry.may_be_complete && entry.folder != latest) candidates.folders.push_back(entry.folder);
  }
  int64_t next_step = std::numeric_limits<int64_t>::max();
  bool began = candidates.run.id.empty();  // true if older checkpoints without an id may belong to the run
  for (const CatalogEntry& entry : newest_first) {
    if (entry.may_be_complete) continue;
    const bool own = entry.run_id == candidates.run.id;
    began = began || own;
    if (entry.run_id && !own && !(entry.run_id->empty() && began)) {
      candidates.left_out.push_back(fmt::format("{} ({})", entry.tag, show_run(*entry.run_id)));
      continue;
    }
    // The age is unknown without a readable manifest.
    if (entry.run_id && entry.step) {
      if (*entry.step >= next_step) {
        if (entry.folder != latest) {
          candidates.left_out.push_back(fmt::format("{} (the run has since returned to an earlier step)", entry.tag));
        }
        continue;
      }
      next_step = *entry.step;
    }
    if (entry.folder != latest) candidates.folders.push_back(entry.folder);
  }
}

}  // namespace

FilesInFolder files_in(const fs::path& folder) {
  FilesInFolder found;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    std::error_code removed;
    if (!entry->is_regular_file(removed)) continue;
    const uintmax_t size = entry->file_size(removed);
    if (removed) continue;
    found.bytes += static_cast<int64_t>(size);
    ++found.count;
  }
  return found;
}

std::vector<CatalogEntry> list_checkpoints(const fs::path& checkpoint_dir, const std::string& model_type) {
  std::vector<CatalogEntry> entries;
  for (const fs::path& folder : folders_in(checkpoint_dir)) {
    const std::string name = folder.filename().string();
    // After a crash, a checkpoint may exist only under the name <tag>.replaced.
    const std::optional<std::string> replaced = replaced_tag(name);
    const std::string tag = replaced.value_or(name);
    if (replaced && path_exists(checkpoint_dir / tag)) continue;
    if (step_of_tag(tag, model_type) || (model_type.empty() && !name.ends_with(".tmp") && holds_checkpoint(folder))) {
      entries.push_back(describe(folder, tag));
    }
  }
  std::sort(entries.begin(), entries.end(), [](const CatalogEntry& a, const CatalogEntry& b) {
    return std::tuple(a.generation, a.step.value_or(-1), a.tag) > std::tuple(b.generation, b.step.value_or(-1), b.tag);
  });
  return entries;
}

int64_t next_generation(const fs::path& checkpoint_dir, std::vector<Leftover>* not_known) {
  int64_t newest = 0;
  for (const CatalogEntry& entry : list_checkpoints(checkpoint_dir)) {
    newest = std::max(newest, entry.generation);
    if (entry.may_be_complete && !entry.has_manifest && not_known != nullptr) {
      not_known->push_back({entry.folder, entry.problem});
    }
  }
  return newest + 1;
}

std::vector<fs::path> checkpoints_to_prune(const fs::path& checkpoint_dir,
                                           const std::vector<CatalogEntry>& newest_first, int64_t keep_last,
                                           const std::function<bool(const CatalogEntry&)>& is_good) {
  if (keep_last <= 0) return {};
  const std::optional<std::string> latest = latest_tag(checkpoint_dir);
  std::vector<fs::path> doomed;
  int64_t good = 0;
  for (const CatalogEntry& entry : newest_first) {
    if (good >= keep_last) {
      if (entry.has_manifest && !entry.may_be_complete && entry.tag != latest) doomed.push_back(entry.folder);
    } else if (entry.problem.empty() && is_good(entry)) {
      ++good;
    }
  }
  return doomed;
}

std::vector<Leftover> prune_checkpoints(const fs::path& checkpoint_dir, const std::string& model_type,
                                        const std::string& run_id, int64_t keep_last, FileSystem& files) {
  if (keep_last <= 0) return {};
  const auto sizes_are_right = [](const CatalogEntry&) { return true; };
  std::vector<CatalogEntry> own = list_checkpoints(checkpoint_dir, model_type);
  std::erase_if(own, [&](const CatalogEntry& entry) { return entry.run_id != run_id; });
  return remove_checkpoints(checkpoints_to_prune(checkpoint_dir, own, keep_last, sizes_are_right), run_id, files);
}

ResumeCandidates resume_candidates(const fs::path& checkpoint_dir, const std::string& model_type) {
  ResumeCandidates candidates;
  std::optional<fs::path> first;
  bool named = true;
  try {
    first = latest_checkpoint(checkpoint_dir);
    named = first.has_value();
  } catch (const Damaged& error) {
    candidates.problem_of_latest = error.what();
  }
  const std::vector<CatalogEntry> newest_first = list_checkpoints(checkpoint_dir, model_type);
  candidates.run = run_to_go_on(first, newest_first, candidates.problem_of_run);
  if (!candidates.problem_of_run.empty()) candidates.newest_of_runs = newest_of_runs(newest_first);
  if (first) candidates.folders.push_back(*first);
  add_others(first, newest_first, candidates);
  if (!named && !candidates.folders.empty()) {
    candidates.problem_of_latest =
        fmt::format("{} contains checkpoints, but no 'latest' file that selects one", checkpoint_dir.string());
  }
  return candidates;
}

}  // namespace mpzero::io
