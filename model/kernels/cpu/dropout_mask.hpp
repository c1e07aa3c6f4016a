#pragma once

#include <ATen/core/PhiloxRNGEngine.h>
#include <c10/macros/Macros.h>

#include <cstdint>

namespace mpzero::model {

// Seed of a step's dropout masks. A mask depends only on the seed, the ID of the dropout call and the element's
// position, so masks are identical for any number of ranks and any micro-batch size, in recomputation and after a
// resume.
struct DropoutSeed {
  uint64_t seed = 0;
  int64_t first_sample = 0;  // index of the batch's first sequence, counted from the start of the run
};

// Dropout (Srivastava et al., 2014) of a tensor with the concatenated sequences of a batch.
struct Dropout {
  double rate = 0;  // probability that an element is dropped; kept elements are divided by 1 - rate
  DropoutSeed seed = {};
  int64_t sequences = 1;
  uint32_t place = 0;  // ID of the dropout call in the model
};

// Returns the threshold below which a 32-bit random value drops its element.
inline uint32_t dropped_values(const Dropout& dropout) { return static_cast<uint32_t>(dropout.rate * 4294967296.0); }

// Applies dropout to `count` <= 4 elements of a sequence, starting at element 4 * `quad`. Philox4x32-10 (Salmon et al.,
// "Parallel Random Numbers: As Easy as 1, 2, 3", SC11) uses the seed as its key and `quad`, Dropout::place and the
// sample index as its counter. `scale`: 1 / (1 - rate).
template <typename T, typename Wide>
C10_HOST_DEVICE inline void drop(T* x, int64_t count, int64_t sequence, int64_t quad, const Dropout& dropout,
                                 uint32_t dropped, Wide scale) {
  const auto offset = static_cast<uint64_t>(dropout.place) << 32 | static_cast<uint64_t>(quad);
  at::philox_engine random(dropout.seed.seed, static_cast<uint64_t>(dropout.seed.first_sample + sequence), offset);
  for (int64_t i = 0; i < count; ++i) {
    x[i] = static_cast<T>(random() < dropped ? Wide(0) : static_cast<Wide>(x[i]) * scale);
  }
}

}  // namespace mpzero::model
