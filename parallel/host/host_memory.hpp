#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <vector>

namespace mpzero::parallel {

class ThreadTeam;

// Size of an x86-64 huge page, in bytes.
inline constexpr size_t kLargePage = size_t{2} << 20;

// Returns a zeroed tensor [numel] in host memory, in huge pages if available. The threads of `team` (null: the
// process's threads) touch the memory first, for NUMA locality. Pinned memory is registered with CUDA instead of
// allocated by torch's pinned allocator, which would round the size up to a power of two. Throws Failure with the size
// if there is not enough memory.
at::Tensor host_tensor(int64_t numel, at::ScalarType dtype, bool pinned, ThreadTeam* team = nullptr);
// Returns one tensor for each element of `numel`. Pinned tensors are registered with CUDA by several threads.
std::vector<at::Tensor> host_tensors(const std::vector<int64_t>& numel, at::ScalarType dtype, bool pinned,
                                     ThreadTeam* team = nullptr);

// Returns a tensor without backing memory, for a simulated device. The tensor must not be read or written.
at::Tensor host_tensor_without_memory(int64_t numel, at::ScalarType dtype);

}  // namespace mpzero::parallel
