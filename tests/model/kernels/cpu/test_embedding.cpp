#include <ATen/ops/randint.h>
#include <ATen/ops/zeros.h>

#include "model/kernels/cpu/cpu.hpp"
#include "model/kernels/embedding.hpp"
#include "tests/model/kernels/cpu/kernel_checks.hpp"

namespace mpzero::model {

TEST_CASE("the embedding's gradient on the CPU") {
  for (const at::ScalarType type : kTypes) {
    for (const at::ScalarType gradient_type : kTypes) {
      CAPTURE(type, gradient_type);
      const at::Tensor tokens = at::randint(9, {150}, at::kLong), dy = numbers({150, 45}, type);
      const auto results = same_on_any_threads([&] {
        at::Tensor gradient = at::zeros({17, 45}, gradient_type);
        embedding_backward(gradient, tokens, dy);
        return std::vector{gradient};
      });
      at::Tensor expected = at::zeros({17, 45}, at::kDouble);
      reference::embedding_backward(expected, tokens, wide(dy));
      CHECK(relative_error(results[0], expected) < (gradient_type == at::kFloat ? 1e-6 : 4e-3));
    }
  }
}

}  // namespace mpzero::model
