#pragma once

#include <ATen/core/Tensor.h>

#include "base/device/simulated.hpp"

namespace mpzero::model {

// Whether mpzero's GPU or CPU kernels support x's device and dtype (fp32, bf16); otherwise callers use ATen's
// operators.
inline bool has_kernels(const at::Tensor& x) {
  const bool device = uses_gpu_kernels(x.device()) || uses_cpu_kernels(x.device());
  return device && (x.scalar_type() == at::kFloat || x.scalar_type() == at::kBFloat16);
}

// Runs the kernel for x's device. The caller allocates the results, so the simulated device, which runs no kernel, gets
// the same tensors.
template <typename Gpu, typename Cpu>
void launch(const at::Tensor& x, const Gpu& gpu, const Cpu& cpu) {
  if (x.is_cuda()) gpu();
  if (x.is_cpu()) cpu();
}

// Buffer for a kernel's partial sums over rows: fp32 [parts, columns]. Undefined on a GPU, whose kernels choose the
// number of parts at launch; on a simulated GPU, as many parts as those kernels use for many rows.
at::Tensor partial_sums(const at::Tensor& x, int64_t rows, int64_t columns);

// On the simulated device, allocates and frees a kernel's workspace.
void borrow(const at::Tensor& x, int64_t bytes);

}  // namespace mpzero::model
