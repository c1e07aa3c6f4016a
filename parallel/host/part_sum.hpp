#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>
#include <span>

namespace mpzero::parallel {

// sum [n] <- (or +=) parts[0] + parts[1] + ..., with each part [n] in host memory, on the calling thread. The parts are
// added in order in fp32 (fp64 for fp64 parts), and the sum is rounded once. `part_type` and `sum_type` are fp32 or
// bf16, or both fp64. `sum` may alias a part of the same dtype. Throws Failure for other combinations of dtypes.
void sum_parts(std::span<const void* const> parts, c10::ScalarType part_type, int64_t n, bool add, void* sum,
               c10::ScalarType sum_type);

}  // namespace mpzero::parallel
