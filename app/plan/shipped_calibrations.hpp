#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace mpzero::plan {

// Ranks per host and threads per rank on a CPU. 0 for a GPU.
struct CalibratedRanks {
  int ranks = 0, threads = 0;
};

// Returns the calibration file for a GPU or processor. A GPU's name must match exactly, e.g. "NVIDIA H200" (CUDA) or
// "H100 80GB" (instance table). For a processor, prefers the longest name contained in `device`, then the closest
// rank and thread counts. Throws UserError if no file matches or a file is invalid. `folders`: searched in this order.
std::filesystem::path calibration_for(const std::string& device, const std::vector<std::filesystem::path>& folders,
                                      const CalibratedRanks& ranks = {});
// Overload that searches the folders of calibrations shipped with mpzero.
std::filesystem::path calibration_for(const std::string& device, const CalibratedRanks& ranks = {});

}  // namespace mpzero::plan
