#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace mpzero {

// Contents of stop.json, for a run that stops because hosts must be excluded.
struct StopReport {
  std::string job;  // SLURM_JOB_ID; empty without Slurm
  int restart = 0;  // SLURM_RESTART_COUNT
  std::string reason;
  std::vector<std::string> hosts;
};

// Writes stop.json atomically to the existing `folder`. Throws Error if the file cannot be written.
void write_stop_report(const std::filesystem::path& folder, const StopReport& report);

}  // namespace mpzero
