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
  // Whether it resumed from a checkpoint without an id, so that lines without an id are its own. They also count as its
  // own if the file has lines with its id.
  bool began_without_id = false;
};

// Throws UserError if `path` is a file without a line of metrics, such as a user's own.
void check_is_for_metrics(const std::filesystem::path& path);

// Throws UserError or Failure if `path`, whose folder is created, cannot be written. For a run that has nothing to lose
// yet.
void check_metrics_file(const std::filesystem::path& path);

// A JSON Lines file with one object per step. See JsonLines.
class MetricsLog {
 public:
  // Keeps the lines of steps 1 .. `steps_done` that `owner` wrote before and drops its later ones, so that the file has
  // each step once. The old file is unchanged until its replacement is complete. A file with lines of another run, or
  // with damaged ones, is renamed, to "metrics.old-1.jsonl" or "metrics.damaged-1.jsonl", and `warn` gets a sentence.
  MetricsLog(const std::filesystem::path& path, int64_t steps_done, MetricsOwner owner, const JsonLines::Warn& warn);

  // `step`: the fields of a step, an object. A value that is not finite is written as null.
  void write(nlohmann::ordered_json step);
  // Waits until the lines are on disk.
  void sync() { lines_->sync(); }

 private:
  MetricsOwner owner_;
  std::optional<JsonLines> lines_;
};

}  // namespace mpzero
