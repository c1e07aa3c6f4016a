#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "app/log/json_lines.hpp"
#include "model/fp8/cast_watch.hpp"

namespace mpzero {

// One optimizer step. A value that is not finite is written as null.
struct StepMetrics {
  int64_t step = 0;              // from 1
  double loss = 0;               // mean over the global batch, nats per token
  double lr = 0;                 // applied in this step
  double grad_norm = 0;          // L2 over all parameters, before clipping
  int64_t tokens = 0;            // trained on since step 1, by all ranks together
  double tokens_per_second = 0;  // of all ranks together
  double step_seconds = 0;
  double time = 0;                                    // of the step's end, in seconds since 1970
  std::vector<std::pair<std::string, double>> extra;  // e.g. {"validation_loss", 3.2}
  std::vector<double> rank_seconds = {};              // by rank; empty: left out
  model::CastRanges casts = {};                       // of all ranks; empty: left out
};

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

  void write(const StepMetrics& metrics);
  // Waits until the lines are on disk.
  void sync() { lines_->sync(); }

 private:
  MetricsOwner owner_;
  std::optional<JsonLines> lines_;
};

}  // namespace mpzero
