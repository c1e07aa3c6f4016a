#pragma once

#include <ATen/core/Tensor.h>

#include "base/device/simulated.hpp"

namespace mpzero::model {

// Whether mpzero's kernels, for GPUs or CPUs, compute tensors like x: fp32 and bf16. ATen's operators compute others.
inline bool has_kernels(const at::Tensor& x) {
  const bool device = uses_gpu_kernels(x.device()) || uses_cpu_kernels(x.device());
  return device && (x.scalar_type() == at::kFloat || x.scalar_type() == at::kBFloat16);
}

// Runs the kernel of the device of x. Callers have allocated its results, so that on the simulated device, where
// nothing runs, a kernel leaves the same tensors.
template <typename Gpu, typename Cpu>
void launch(const at::Tensor& x, const Gpu& gpu, const Cpu& cpu) {
  if (x.is_cuda()) gpu();
  if (x.is_cpu()) cpu();
}

// Where a kernel adds up rows of `columns` in parts: fp32 [parts, columns]. Undefined on a GPU, whose kernels choose
// the number of parts when they are launched; the simulated one has as many as they have for many rows.
at::Tensor partial_sums(const at::Tensor& x, int64_t rows, int64_t columns);

// On the simulated device, allocates and frees the workspace of a kernel.
void borrow(const at::Tensor& x, int64_t bytes);

}  // namespace mpzero::model
