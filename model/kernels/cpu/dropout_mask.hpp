#pragma once

#include <ATen/core/PhiloxRNGEngine.h>
#include <c10/macros/Macros.h>

#include <cstdint>

namespace mpzero::model {

// What a step's masks are functions of, besides place and element: they are the same on any number of ranks, in any
// micro-batch, when they are recomputed, and after a resume.
struct DropoutSeed {
  uint64_t seed = 0;
  int64_t first_sample = 0;  // of the batch's sequences, which are counted from the start of the run
};

// Dropout (Srivastava et al., 2014) of a tensor whose outermost dimensions are the sequences of a batch.
struct Dropout {
  double rate = 0;  // the probability of 0; other elements are divided by 1 - rate. 0: no dropout
  DropoutSeed seed = {};
  int64_t sequences = 1;
  uint32_t place = 0;  // in the model
};

// Of 2^32 values, those that drop an element.
inline uint32_t dropped_values(const Dropout& dropout) { return static_cast<uint32_t>(dropout.rate * 4294967296.0); }

// Of the `count` elements, at most 4, of a sequence from 4 * `quad` on. Philox4x32-10 (Salmon et al., "Parallel Random
// Numbers: As Easy as 1, 2, 3", SC11) has the seed as its key; its counter is the quad, the place and the sample.
// `scale`: of what is kept, 1 / (1 - rate).
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
