#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <vector>

namespace mpzero::parallel {

class ThreadTeam;

// Bytes of an x86-64 huge page.
inline constexpr size_t kLargePage = size_t{2} << 20;

// A one-dimensional tensor in host memory of exactly `numel` elements, zeroed, in huge pages if available, and first
// touched by the threads of `team` (null: the process's threads), for NUMA locality. Pinned memory is registered,
// because torch's pinned allocator rounds each block up to a power of two. Throws Failure with the size if there is not
// enough memory.
at::Tensor host_tensor(int64_t numel, at::ScalarType dtype, bool pinned, ThreadTeam* team = nullptr);
// One tensor for each of `numel`. Faster for many pinned tensors: several threads register them.
std::vector<at::Tensor> host_tensors(const std::vector<int64_t>& numel, at::ScalarType dtype, bool pinned,
                                     ThreadTeam* team = nullptr);

// The same without backing memory, for a simulated device: must not be read or written.
at::Tensor host_tensor_without_memory(int64_t numel, at::ScalarType dtype);

}  // namespace mpzero::parallel
