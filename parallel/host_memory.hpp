#pragma once

#include <ATen/core/Tensor.h>

namespace mpzero::parallel {

// A one-dimensional tensor in host memory of exactly `numel` elements, zeroed. Pinned memory is mapped and registered,
// because torch's pinned allocator rounds each block up to a power of two. Throws Failure naming the size when memory
// is short.
at::Tensor host_tensor(int64_t numel, at::ScalarType dtype, bool pinned);

}  // namespace mpzero::parallel
