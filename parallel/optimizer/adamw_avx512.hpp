#pragma once

#include <cstdint>

#include "parallel/optimizer/adamw_kernels.hpp"

namespace mpzero::parallel {

// Whether this CPU runs adamw_avx512.
bool cpu_has_avx512();

// AdamW over the elements [begin, end) of `spans`, except for the last (end - begin) % 16 of them. Returns where it
// stopped. bf16 parameters, and states that go to separate memory, bypass the caches, because nothing on this CPU reads
// them soon. Otherwise each would be fetched before it is overwritten, and the update is memory-bound.
int64_t adamw_avx512(const AdamWSpans& spans, const AdamWUpdate& update, int64_t begin, int64_t end);

}  // namespace mpzero::parallel
