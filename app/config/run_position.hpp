#pragma once

#include <cstdint>

namespace mpzero {

// How far a run is.
struct RunPosition {
  int64_t step = 0;  // optimizer steps done
  // The next training window, counted over the epochs in windows of the run's seq_length. Of a run whose seq_length has
  // never changed: the windows that all ranks together have consumed.
  int64_t sequences_seen = 0;
  int64_t tokens_seen = 0;
};

}  // namespace mpzero
