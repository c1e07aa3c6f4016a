#include <ATen/ops/arange.h>
#include <ATen/ops/randint.h>

#include <cmath>
#include <limits>

#include "model/kernels/cpu/cpu.hpp"
#include "model/kernels/cross_entropy.hpp"
#include "tests/model/kernels/cpu/kernel_checks.hpp"

namespace mpzero::model {

TEST_CASE("cross entropy on the CPU, with large and with masked logits") {
  for (const at::ScalarType type : kTypes) {
    for (const int64_t vocabulary : {7, 64, 1003}) {
      for (const double spread : {1.0, 100.0}) {
        CAPTURE(type, vocabulary, spread);
        at::Tensor logits = numbers({33, vocabulary}, type).mul_(spread);
        logits.select(1, 1).fill_(-std::numeric_limits<double>::infinity());
        const at::Tensor targets = at::randint(2, vocabulary, {33}, at::kLong);
        const at::Tensor weights = at::arange(33, at::kFloat).remainder(5);
        const auto results = same_on_any_threads([&] {
          at::Tensor in_place = logits.clone();
          const at::Tensor losses = cross_entropy_forward_backward_(in_place, targets, 0.25);
          at::Tensor weighted = logits.clone();
          cross_entropy_forward_backward_(weighted, targets, 0.25, weights);
          return std::vector{losses, in_place, cross_entropy_forward(logits, targets), weighted};
        });
        at::Tensor expected = wide(logits);
        const at::Tensor losses = reference::cross_entropy_forward_backward_(expected, targets, 0.25);
        CHECK(relative_error(results[0], losses) < 3e-6);
        CHECK(relative_error(results[1], expected) < tolerance(type));
        CHECK(bitwise_equal(results[2], results[0]));
        at::Tensor weighted = wide(logits);
        reference::cross_entropy_forward_backward_(weighted, targets, 0.25, weights);
        CHECK(relative_error(results[3], weighted) < tolerance(type));
      }
    }
  }
}

TEST_CASE("a target outside the vocabulary makes the loss NaN on the CPU") {
  at::Tensor logits = numbers({3, 20}, at::kFloat);
  at::Tensor targets = at::randint(20, {3}, at::kLong);
  targets[0] = -1;
  targets[2] = 20;
  const at::Tensor losses = cross_entropy_forward_backward_(logits, targets, 1.0);
  CHECK(std::isnan(losses[0].item<float>()));
  CHECK_FALSE(std::isnan(losses[1].item<float>()));
  CHECK(std::isnan(losses[2].item<float>()));
}

}  // namespace mpzero::model
