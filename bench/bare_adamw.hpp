#pragma once

#include <cstdint>

namespace mpzero::bench {

// Minimal CPU AdamW, an upper bound for throughput: contiguous elements aligned to 64 bytes, fixed dtypes, bf16 by
// truncation, without clipping and bias correction. Reads bf16 gradients, updates fp32 master weights and
// moments, and writes bf16 parameters with non-temporal stores. The range must be a multiple of 16.
struct BareAdamW {
  const uint16_t* gradient;
  float* master;
  float* exp_avg;
  float* exp_avg_sq;
  uint16_t* parameter;
};

// Returns false without updating if this CPU lacks AVX-512.
bool bare_adamw(const BareAdamW& arrays, int64_t begin, int64_t end);

}  // namespace mpzero::bench
