#include "model/operation/launch.hpp"

#include <ATen/ops/empty.h>

#include <algorithm>

#include "model/kernels/cpu/cpu.hpp"

namespace mpzero::model {

at::Tensor partial_sums(const at::Tensor& x, int64_t rows, int64_t columns) {
  constexpr int64_t kAMultiprocessor = 2;
  if (x.is_cuda()) return {};
  const int64_t parts = uses_cpu_kernels(x.device())
                            ? cpu::partial_sums(rows)
                            : std::min<int64_t>(rows, kAMultiprocessor * simulated_target().multiprocessors);
  return at::empty({parts, columns}, x.options().dtype(at::kFloat));
}

void borrow(const at::Tensor& x, int64_t bytes) {
  if (is_simulated(x.device()) && bytes > 0) at::empty({bytes}, x.options().dtype(at::kByte));
}

}  // namespace mpzero::model
