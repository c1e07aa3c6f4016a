#include "model/kernels/attention.hpp"
#include "model/kernels/cpu/attention.hpp"
#include "tests/model/kernels/cpu/kernel_checks.hpp"

namespace mpzero::model {

TEST_CASE("attention on the CPU does not depend on the number of threads") {
  for (const at::ScalarType type : kTypes) {
    if (!cpu::has_attention(type, 32)) continue;
    const at::Tensor packed = numbers({2, 150, 8, 32}, type), dout = numbers({2, 150, 4, 32}, type);
    same_on_any_threads([&] {
      const at::Tensor q = packed.narrow(2, 0, 4), k = packed.narrow(2, 4, 2), v = packed.narrow(2, 6, 2);
      const AttentionOutput out = attention_forward(AttentionKernel::kCpuBlocks, q, k, v);
      const AttentionGradients gradients = attention_backward(AttentionKernel::kCpuBlocks, dout, q, k, v, out);
      return std::vector{out.out, gradients.dq, gradients.dk, gradients.dv};
    });
  }
}

}  // namespace mpzero::model
