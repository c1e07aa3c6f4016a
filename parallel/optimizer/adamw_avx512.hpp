#pragma once

#include <cstdint>

#include "parallel/optimizer/adamw_kernels.hpp"

namespace mpzero::parallel {

// Whether this CPU supports adamw_avx512.
bool cpu_has_avx512();

// AdamW over the elements [begin, end) of `spans`, except for the last (end - begin) % 16. Returns the end of the
// updated range. Stores of bf16 parameters, and of states in separate memory, bypass the caches: this CPU does not read
// them soon, and the update is memory-bound, so fetching each line before overwriting it would cost time.
int64_t adamw_avx512(const AdamWSpans& spans, const AdamWUpdate& update, int64_t begin, int64_t end);

}  // namespace mpzero::parallel
