#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string>

namespace mpzero {

// Totals of one attempt of a run.
struct StartTotals {
  double elapsed_seconds = 0;
  int64_t steps = 0;
  double step_seconds = 0;  // total duration of the steps
  int64_t tokens = 0;       // training tokens on all ranks
  int64_t checkpoints = 0;
  int64_t stalls = 0;  // steps longer than three times the median

  StartTotals& operator+=(const StartTotals& other);
};

// Totals of all attempts of a run.
struct RunTotals : StartTotals {
  int64_t starts = 0;
  double gpu_seconds = 0;  // elapsed time times the number of GPUs
  int64_t after_step = 0;  // steps completed before the first recorded attempt; not 0 if earlier events are elsewhere
};

// Returns the totals over all attempts of run `run_id` in the file. The totals of a killed attempt are from its last
// event. Returns zeros if `path` is not a regular file. Ignores invalid lines, because a crash may truncate a line.
RunTotals totals_of(const std::filesystem::path& path, const std::string& run_id);

// Returns the last line of a run's log: "Run 5f1c...: 800 steps, ...".
std::string describe(const RunTotals& totals, const std::string& run_id);
nlohmann::ordered_json to_json(const RunTotals& totals);

}  // namespace mpzero
