#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace mpzero::io {

// A source of a dataset mixture and its current position.
struct MixtureSource {
  double weight = 1;         // relative share of the windows, not normalized
  uint64_t seed = 0;         // seed of the shuffled order
  int64_t windows_seen = 0;  // over all epochs; the position in the order of this source
  int64_t drawn = 0;         // windows drawn since the last change of the weights
};

// Selects the source of the next window, increments its counters and returns its index. After k draws, a source with
// share w has been drawn floor(w * k) or ceil(w * k) times (Balinski and Young, "The Quota Method of Apportionment",
// Amer. Math. Monthly 82, 1975). The result depends only on the weights and on `drawn`.
size_t draw(std::span<MixtureSource> sources);

}  // namespace mpzero::io
