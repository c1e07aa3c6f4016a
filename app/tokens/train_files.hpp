#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace mpzero {

// A token file of --train_data.
struct TrainFile {
  std::string path;
  // Its share of the sequences, times the sum of all weights. 0: not given; then it is num_windows, once that is known.
  double weight = 0;
  int64_t num_windows = 0;  // 0: not known

  bool operator==(const TrainFile&) const = default;
};

// Reads FILE, or a mixture: FILE:WEIGHT,FILE:WEIGHT, with weights for all files or for none. The path of an existing
// file is one file, whatever its name. Throws UserError for a weight that is not above 0, and for one that is missing.
std::vector<TrainFile> train_files(const std::string& train_data);

}  // namespace mpzero
