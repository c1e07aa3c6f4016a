#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace mpzero {

// A token file of --train_data.
struct TrainFile {
  std::string path;
  // Its share of the sequences is weight / sum of all weights. 0: not given; becomes num_windows once known.
  double weight = 0;
  int64_t num_windows = 0;  // 0: unknown

  bool operator==(const TrainFile&) const = default;
};

// Parses FILE, or a mixture: FILE:WEIGHT,FILE:WEIGHT, with weights for all files or for none. The path of an existing
// file is never split. Throws UserError for a missing or nonpositive weight.
std::vector<TrainFile> train_files(const std::string& train_data);

}  // namespace mpzero
