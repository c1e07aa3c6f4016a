#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "app/log/json_lines.hpp"

namespace mpzero {

struct MetricsOwner {
  std::string run_id;  // RunRecord::id
  // True if the run resumed from a checkpoint without a run id. Lines without an id then belong to this run.
  bool began_without_id = false;
};

// Throws UserError if `path` exists but is not a metrics file, to protect user files.
void check_is_for_metrics(const std::filesystem::path& path);

// Creates the folder of `path`. Throws UserError or Failure if `path` is not writable. Called only for new runs,
// because a resumed run continues even if the metrics file is not writable.
void check_metrics_file(const std::filesystem::path& path);

// A JSON Lines file with one object per step; see JsonLines.
class MetricsLog {
 public:
  // Keeps the lines of `owner` for steps 1 to `steps_done` and removes all later lines of `owner`, so each step occurs
  // once. Replaces the file atomically. Renames a file with lines of another run to "metrics.old-1.jsonl", and a file
  // with damaged lines to "metrics.damaged-1.jsonl". Calls `warn` for each renamed file.
  MetricsLog(const std::filesystem::path& path, int64_t steps_done, MetricsOwner owner, const JsonLines::Warn& warn);

  // Appends a line. `step`: object with the fields of a step. Non-finite values are written as null.
  void write(nlohmann::ordered_json step);
  // Waits until all lines are on disk.
  void sync() { lines_->sync(); }

 private:
  MetricsOwner owner_;
  std::optional<JsonLines> lines_;
};

}  // namespace mpzero
