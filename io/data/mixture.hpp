#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace mpzero::io {

// A source of a dataset mixture, and its position.
struct MixtureSource {
  double weight = 1;         // its share of the sequences, times the sum of all weights
  uint64_t seed = 0;         // for its shuffled order
  int64_t windows_seen = 0;  // over all its epochs: the position of its next window in its own order
  int64_t drawn = 0;         // windows drawn since these weights took effect
};

// Draws the next window of a mixture: counts it in its source and returns the index of the source. After k draws, a
// source with share w has been drawn floor(w * k) or ceil(w * k) times (Balinski and Young, "The Quota Method of
// Apportionment", Amer. Math. Monthly 82, 1975). The next source depends only on weights and `drawn`.
size_t draw(std::span<MixtureSource> sources);

}  // namespace mpzero::io
