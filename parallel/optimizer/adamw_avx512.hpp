#pragma once

#include <cstdint>

#include "parallel/optimizer/adamw_kernels.hpp"

namespace mpzero::parallel {

// Returns true if this CPU supports adamw_avx512().
bool cpu_has_avx512();

// Updates the elements [begin, end) of `spans`, except for the last (end - begin) % 16. Returns the end of the range of
// updated elements. Writes bf16 parameters, and states in separate memory, with non-temporal stores: the update is
// memory-bound, and regular stores would fetch each cache line before overwriting it.
int64_t adamw_avx512(const AdamWSpans& spans, const AdamWUpdate& update, int64_t begin, int64_t end);

}  // namespace mpzero::parallel
