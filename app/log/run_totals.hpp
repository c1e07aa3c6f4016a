#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string>

namespace mpzero {

// Totals of one start of a run.
struct StartTotals {
  double elapsed_seconds = 0;
  int64_t steps = 0;
  double step_seconds = 0;  // sum over these steps
  int64_t tokens = 0;       // trained on in these steps, on all ranks
  int64_t checkpoints = 0;
  int64_t stalls = 0;  // steps that took over three times the median

  StartTotals& operator+=(const StartTotals& other);
};

// Totals of all starts of a run.
struct RunTotals : StartTotals {
  int64_t starts = 0;
  double gpu_seconds = 0;  // elapsed time times the number of GPUs
  int64_t after_step = 0;  // steps before the earliest start; above 0: earlier events are in another folder
};

// Adds up the starts of run `run_id` in the file. A killed start counts up to its last event. Zeros if `path` is not a
// regular file. Ignores lines that are not events: a crash may truncate a line.
RunTotals totals_of(const std::filesystem::path& path, const std::string& run_id);

// The last line of a run's log: "Run 5f1c...: 800 steps, ...".
std::string describe(const RunTotals& totals, const std::string& run_id);
nlohmann::ordered_json to_json(const RunTotals& totals);

}  // namespace mpzero
