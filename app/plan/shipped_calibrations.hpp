#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace mpzero::plan {

// Ranks per host and threads per rank that use a CPU. 0: a GPU, or unknown.
struct CalibratedRanks {
  int ranks = 0, threads = 0;
};

// The file in configs/calibrations for a GPU or processor. A GPU's name must match exactly, e.g. "NVIDIA H200" (CUDA)
// or "H100 80GB" (instance table). For a processor, the longest name contained in `device` wins, then the most similar
// ranks and threads. Throws UserError with the known devices if no file matches, or if a file cannot be read.
// `folders`: searched in this order.
std::filesystem::path calibration_for(const std::string& device, const std::vector<std::filesystem::path>& folders,
                                      const CalibratedRanks& ranks = {});
// Searches the folders of shipped files.
std::filesystem::path calibration_for(const std::string& device, const CalibratedRanks& ranks = {});

}  // namespace mpzero::plan
