#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace mpzero::plan {

// How a CPU is used: by so many ranks of a host with so many threads each. 0: by a GPU, or not known.
struct CalibratedRanks {
  int ranks = 0, threads = 0;
};

// The file of configs/calibrations for a GPU or processor. A GPU's has exactly its name, e.g. "NVIDIA H200" as CUDA
// says, or "H100 80GB" as a table of instances does. A processor's is the one with the longest name that is part of
// `device`, and of those the one that was measured with the most similar ranks and threads. Throws UserError, naming
// the devices that there are files for, if there is none, and where a file cannot be read. `folders`: looked through in
// this order.
std::filesystem::path calibration_for(const std::string& device, const std::vector<std::filesystem::path>& folders,
                                      const CalibratedRanks& ranks = {});
// In the folders where shipped files lie.
std::filesystem::path calibration_for(const std::string& device, const CalibratedRanks& ranks = {});

}  // namespace mpzero::plan
