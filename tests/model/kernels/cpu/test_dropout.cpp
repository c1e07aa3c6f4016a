#include <ATen/Parallel.h>
#include <ATen/ops/randn.h>

#include "model/kernels/cpu/cpu.hpp"
#include "tests/catch.hpp"

namespace mpzero::model {

TEST_CASE("dropout on the CPU zeroes or scales the same elements for any number of threads") {
  const at::Tensor x = at::randn({3, 50'001}), once = x.clone();
  const Dropout dropout{.rate = 0.2, .seed = {.seed = 3, .first_sample = 11}, .sequences = 3, .place = 5};
  cpu::dropout(once, dropout);
  CHECK(once.eq(0).logical_or(once.eq(x.mul(static_cast<float>(1 / 0.8)))).all().item<bool>());
  const int before = at::get_num_threads();
  at::set_num_threads(1);
  const at::Tensor again = x.clone();
  cpu::dropout(again, dropout);
  at::set_num_threads(before);
  CHECK(again.equal(once));
}

}  // namespace mpzero::model
