#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <vector>

namespace mpzero::parallel {

class ThreadTeam;

// Bytes of a huge page of x86-64.
inline constexpr size_t kLargePage = size_t{2} << 20;

// A one-dimensional tensor in host memory of exactly `numel` elements, zeroed, in huge pages if the system has them,
// and touched by the threads of `team` (none: those of the process), so that it is in the memory near them. Pinned
// memory is registered, because torch's pinned allocator rounds each block up to a power of two. Throws Failure naming
// the size if there is not enough memory.
at::Tensor host_tensor(int64_t numel, at::ScalarType dtype, bool pinned, ThreadTeam* team = nullptr);
// One tensor for each of `numel`. Faster for many pinned tensors: several threads register them.
std::vector<at::Tensor> host_tensors(const std::vector<int64_t>& numel, at::ScalarType dtype, bool pinned,
                                     ThreadTeam* team = nullptr);

// The same without memory behind it, for a simulated device: nothing reads or writes it.
at::Tensor host_tensor_without_memory(int64_t numel, at::ScalarType dtype);

}  // namespace mpzero::parallel
