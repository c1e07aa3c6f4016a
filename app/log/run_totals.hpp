#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string>

namespace mpzero {

// What one start of a run has done.
struct StartTotals {
  double elapsed_seconds = 0;
  int64_t steps = 0;
  double step_seconds = 0;  // of these steps together
  int64_t tokens = 0;       // trained on in these steps, by all ranks together
  int64_t checkpoints = 0;
  int64_t stalls = 0;  // steps that took over three times the median

  StartTotals& operator+=(const StartTotals& other);
};

// Of all starts of a run.
struct RunTotals : StartTotals {
  int64_t starts = 0;
  double gpu_seconds = 0;  // elapsed time by the number of GPUs
  int64_t after_step = 0;  // that of the earliest start; over 0: events of earlier starts are in another folder
};

// Adds up the starts of the run `run_id` that the file has. Of a start that was killed it has what its last event says.
// Empty where no regular file has that name. Lines that are no events are ignored, since a crash may cut a line.
RunTotals totals_of(const std::filesystem::path& path, const std::string& run_id);

// The line that ends a run's log: "Run 5f1c...: 800 steps, ...".
std::string describe(const RunTotals& totals, const std::string& run_id);
nlohmann::ordered_json to_json(const RunTotals& totals);

}  // namespace mpzero
