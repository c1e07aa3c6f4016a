#include "model/kernels/cpu/cpu.hpp"
#include "model/kernels/swiglu.hpp"
#include "tests/model/kernels/cpu/kernel_checks.hpp"

namespace mpzero::model {

TEST_CASE("swiglu on the CPU") {
  for (const at::ScalarType type : kTypes) {
    for (const int64_t inner : {5, 48, 200}) {
      CAPTURE(type, inner);
      const at::Tensor gate_up = numbers({77, 2 * inner}, type).mul_(4), dy = numbers({77, inner}, type);
      const auto results = same_on_any_threads([&] {
        const SwigluRecomputed both = swiglu_backward_recompute(dy, gate_up);
        return std::vector{swiglu_forward(gate_up), swiglu_backward(dy, gate_up), both.y, both.d_gate_up};
      });
      CHECK(relative_error(results[0], reference::swiglu_forward(wide(gate_up))) < tolerance(type));
      CHECK(relative_error(results[1], reference::swiglu_backward(wide(dy), wide(gate_up))) < tolerance(type));
      CHECK(bitwise_equal(results[2], results[0]));
      CHECK(bitwise_equal(results[3], results[1]));
    }
  }
}

}  // namespace mpzero::model
