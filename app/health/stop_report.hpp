#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace mpzero {

// Reason and hosts of a run that stops to leave hosts.
struct StopReport {
  std::string job;  // Slurm's; empty: none
  int restart = 0;  // Slurm's count of the job's restarts
  std::string reason;
  std::vector<std::string> hosts;
};

// Replaces stop.json in the existing `folder`. Throws Error.
void write_stop_report(const std::filesystem::path& folder, const StopReport& report);

}  // namespace mpzero
