#include "model/kernels/dropout.hpp"

#include "model/kernels/cpu/cpu.hpp"
#include "model/kernels/cuda.hpp"
#include "model/operation/elementwise.hpp"
#include "model/operation/launch.hpp"

namespace mpzero::model {

void dropout_(const at::Tensor& x, const Dropout& dropout) {
  if (dropout.rate == 0) return;
  const OperationScope scope(
      "dropout", [&] { return on_matrix(x.scalar_type(), dropout.sequences, x.numel() / dropout.sequences, 2); });
  launch(x, [&] { cuda::dropout(x, dropout); }, [&] { cpu::dropout(x, dropout); });
}

at::Tensor after_dropout(const at::Tensor& x, const Dropout& dropout) {
  if (dropout.rate == 0) return x;
  at::Tensor copy;
  {
    const OperationScope scope = elementwise(x, 2);
    copy = x.clone(at::MemoryFormat::Contiguous);
  }
  dropout_(copy, dropout);
  return copy;
}

}  // namespace mpzero::model
