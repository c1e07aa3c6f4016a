#pragma once

#include <cstdint>

namespace mpzero::bench {

// A minimal AdamW in host memory, as an upper bound: contiguous elements, aligned to 64 bytes, no clipping, no bias
// correction, fixed dtypes, bf16 by truncation. bf16 gradient in; fp32 master and moments in and out; bf16 parameter
// out, bypassing the caches. `count` is a multiple of 16.
struct BareAdamW {
  const uint16_t* gradient;
  float* master;
  float* exp_avg;
  float* exp_avg_sq;
  uint16_t* parameter;
};

// Returns false, without any work, if this CPU lacks AVX-512.
bool bare_adamw(const BareAdamW& arrays, int64_t begin, int64_t end);

}  // namespace mpzero::bench
