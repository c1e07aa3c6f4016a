#pragma once

#include <cstdint>

namespace mpzero::bench {

// The least that an AdamW in host memory does, as a ceiling: one contiguous run of elements, aligned to 64 bytes, no
// clipping, no bias correction, no choice of types, bf16 by cutting off. bf16 gradient in; fp32 master and moments in
// and out; bf16 parameter out past the caches. `count` is a multiple of 16.
struct BareAdamW {
  const uint16_t* gradient;
  float* master;
  float* exp_avg;
  float* exp_avg_sq;
  uint16_t* parameter;
};

// False where this CPU lacks AVX-512; nothing has been done then.
bool bare_adamw(const BareAdamW& arrays, int64_t begin, int64_t end);

}  // namespace mpzero::bench
