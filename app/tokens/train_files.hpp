#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace mpzero {

// A token file of --train_data.
struct TrainFile {
  std::string path;
  // The fraction of sequences from this file is weight / sum of all weights. 0 means that no weight is set; num_windows
  // then replaces the weight.
  double weight = 0;
  int64_t num_windows = 0;  // number of sequences; 0: unknown

  bool operator==(const TrainFile&) const = default;
};

// Parses FILE or a mixture FILE:WEIGHT,FILE:WEIGHT, in which either all files or no files have weights. The path of an
// existing file is never split. Throws UserError for a missing or nonpositive weight.
std::vector<TrainFile> train_files(const std::string& train_data);

}  // namespace mpzero
