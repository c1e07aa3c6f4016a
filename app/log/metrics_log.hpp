#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "app/log/json_lines.hpp"

namespace mpzero {

// The run that writes metrics.
struct MetricsOwner {
  std::string run_id;  // see RunRecord
  // The run resumed from a checkpoint without an id, so lines without an id belong to it. They also do if the file has
  // lines with its id.
  bool began_without_id = false;
};

// Throws UserError if `path` is a file without metrics, which may be a user's own file.
void check_is_for_metrics(const std::filesystem::path& path);

// Creates the folder of `path`. Throws UserError or Failure if `path` cannot be written. For new runs only: a resumed
// run has progress to lose.
void check_metrics_file(const std::filesystem::path& path);

// A JSON Lines file with one object per step. See JsonLines.
class MetricsLog {
 public:
  // Keeps `owner`'s lines of steps 1 .. `steps_done` and drops its later ones, so each step occurs once. The old file
  // is unchanged until its replacement is complete. A file with lines of another run, or with damaged lines, is renamed
  // to "metrics.old-1.jsonl" or "metrics.damaged-1.jsonl", and `warn` gets a sentence.
  MetricsLog(const std::filesystem::path& path, int64_t steps_done, MetricsOwner owner, const JsonLines::Warn& warn);

  // `step`: an object with the fields of a step. Non-finite values are written as null.
  void write(nlohmann::ordered_json step);
  // Waits until the lines are on disk.
  void sync() { lines_->sync(); }

 private:
  MetricsOwner owner_;
  std::optional<JsonLines> lines_;
};

}  // namespace mpzero
