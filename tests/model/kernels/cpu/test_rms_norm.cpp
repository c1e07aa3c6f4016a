#include <ATen/Context.h>

#include "model/kernels/cpu/cpu.hpp"
#include "model/kernels/rms_norm.hpp"
#include "model/operation/launch.hpp"
#include "tests/model/kernels/cpu/kernel_checks.hpp"

namespace mpzero::model {

TEST_CASE("rms_norm on the CPU") {
  at::manual_seed(5);
  for (const at::ScalarType type : kTypes) {
    for (const auto& [rows, columns] :
         std::vector<std::pair<int64_t, int64_t>>{{1, 3}, {70, 64}, {33, 40}, {200, 256}}) {
      CAPTURE(type, rows, columns);
      const at::Tensor x = numbers({rows, columns}, type), weight = numbers({columns}, type);
      const at::Tensor dy = numbers({rows, columns}, type), dresidual = numbers({rows, columns}, type);
      REQUIRE(has_kernels(x));
      const auto results = same_on_any_threads([&] {
        const RmsNormOutput out = rms_norm_forward(x, weight, 1e-5);
        const RmsNormGradients plain = rms_norm_backward(dy, x, weight, out.rstd, at::Tensor());
        const RmsNormGradients added = rms_norm_backward(dy, x, weight, out.rstd, dresidual, true);
        CHECK_FALSE(plain.y.defined());
        return std::vector{out.y, out.rstd, plain.dx, plain.dweight_rows, added.dx, added.y};
      });
      const RmsNormOutput out = reference::rms_norm_forward(wide(x), wide(weight), 1e-5);
      const RmsNormGradients gradients =
          reference::rms_norm_backward(wide(dy), wide(x), wide(weight), out.rstd, at::Tensor());
      CHECK(relative_error(results[0], out.y) < tolerance(type));
      CHECK(relative_error(results[1], out.rstd) < 1e-6);
      CHECK(relative_error(results[2], gradients.dx) < tolerance(type));
      CHECK(relative_error(results[3].sum(0), gradients.dweight_rows.sum(0)) < tolerance(type));
      CHECK(relative_error(results[4], gradients.dx + wide(dresidual)) < tolerance(type));
      CHECK(bitwise_equal(results[5], results[0]));
    }
  }
}

TEST_CASE("rms_norm on the CPU supports strided rows") {
  const at::Tensor x = numbers({5, 7, 32}, at::kFloat).narrow(1, 2, 3), weight = numbers({32}, at::kFloat);
  const RmsNormOutput out = rms_norm_forward(x, weight, 1e-6);
  CHECK(relative_error(out.y, reference::rms_norm_forward(wide(x), wide(weight), 1e-6).y) < 3e-6);
  CHECK(out.rstd.sizes() == x.sizes().slice(0, 2));
}

}  // namespace mpzero::model
