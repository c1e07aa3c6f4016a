#pragma once

#include <ATen/core/Tensor.h>

#include "base/device/simulated.hpp"

namespace mpzero::model {

// Returns true if mpzero's GPU or CPU kernels support the device and dtype (fp32, bf16) of x. If the result is false,
// callers must use ATen operators.
inline bool has_kernels(const at::Tensor& x) {
  const bool device = uses_gpu_kernels(x.device()) || uses_cpu_kernels(x.device());
  return device && (x.scalar_type() == at::kFloat || x.scalar_type() == at::kBFloat16);
}

// Runs the kernel for the device of x. The simulated device does not run kernels, so the caller must allocate results.
template <typename Gpu, typename Cpu>
void launch(const at::Tensor& x, const Gpu& gpu, const Cpu& cpu) {
  if (x.is_cuda()) gpu();
  if (x.is_cpu()) cpu();
}

// Returns a buffer for a kernel's partial sums over rows, fp32 [parts, columns]. Returns an undefined tensor on a GPU,
// because GPU kernels choose `parts` at launch. On a simulated GPU, `parts` is the value that GPU kernels choose for
// many rows.
at::Tensor partial_sums(const at::Tensor& x, int64_t rows, int64_t columns);

// Allocates and frees a kernel's workspace on the simulated device. No-op on other devices.
void borrow(const at::Tensor& x, int64_t bytes);

}  // namespace mpzero::model
