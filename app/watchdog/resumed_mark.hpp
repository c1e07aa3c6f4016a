#pragma once

#include <filesystem>
#include <string>

namespace mpzero {

// Marks failure.json and stop.json in `folder` as `resumed` if an earlier run within this start of a Slurm job wrote
// them: Slurm, or a manager of the cluster, has restarted the step. `job`: empty: none. For one rank, at the start of a
// run. A file that cannot be written is a warning.
void mark_resumed(const std::filesystem::path& folder, const std::string& job, int restart);

}  // namespace mpzero
