#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace mpzero::plan {

// The file of configs/calibrations for a GPU: the one with the longest name that is part of `gpu`, e.g. "NVIDIA H200"
// as CUDA says, or "H100 80GB" as a table of instances does. Throws UserError, naming the GPUs that there are files
// for, if there is none, and where a file cannot be read. `folders`: looked through in this order.
std::filesystem::path calibration_for(const std::string& gpu, const std::vector<std::filesystem::path>& folders);
// In the folders where shipped files lie.
std::filesystem::path calibration_for(const std::string& gpu);

}  // namespace mpzero::plan
