#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/ops/full.h>
#include <ATen/ops/isnan.h>

#include <limits>

#include "parallel/adamw_avx512.hpp"
#include "tests/parallel/adamw_checks.hpp"

namespace mpzero::parallel {

TEST_CASE("host AdamW agrees with the paper's formula in fp64") { check_adamw_everywhere(at::kCPU); }

TEST_CASE("AVX-512 and portable AdamW round alike") {
  if (!cpu_has_avx512()) return;
  // Magnitudes from denormal to huge, ties of the rounding, infinities: through decay 1 and a zero gradient the master
  // stays and is rounded.
  at::Tensor master = at::randn({4096}) * at::pow(10.0, at::linspace(-44, 38, 4096));
  master[1] = std::numeric_limits<float>::infinity();
  master[2] = 1.00390625F;
  master[3] = 1.01171875F;
  master[4] = -0.0F;
  AdamWTensors tensors{.gradient = at::zeros({4096}),
                       .master = master.clone(),
                       .exp_avg = at::zeros({4096}),
                       .exp_avg_sq = at::zeros({4096}),
                       .parameter = at::zeros({4096}, at::kBFloat16)};
  adamw(tensors, adamw_update({}, 0.0, 1, 1.0));
  REQUIRE(tensors.master.equal(master));
  REQUIRE(tensors.parameter.equal(master.to(at::kBFloat16)));
}

TEST_CASE("sums of squares agree with fp64 and repeat") { check_sum_of_squares(at::kCPU); }

TEST_CASE("host AdamW and sums do not depend on the number of threads") {
  const int64_t numel = 65536 * 5 + 3;
  const at::Tensor gradient = at::randn({numel});
  const at::Tensor initial = at::randn({numel});
  const auto run = [&](int threads) {
    at::set_num_threads(threads);
    AdamWTensors tensors{.gradient = gradient,
                         .master = initial.clone(),
                         .exp_avg = at::zeros({numel}),
                         .exp_avg_sq = at::zeros({numel}),
                         .parameter = at::zeros({numel}, at::kBFloat16)};
    adamw(tensors, adamw_update({}, 1e-3, 1, 1.0));
    return std::pair(tensors.master, sum_of_squares(gradient));
  };
  const int threads = at::get_num_threads();
  const auto one = run(1);
  const auto three = run(3);
  at::set_num_threads(threads);
  REQUIRE(one.first.equal(three.first));
  REQUIRE(one.second.equal(three.second));
}

TEST_CASE("a NaN gradient stays one in the rounded parameter") {
  AdamWTensors tensors{.gradient = at::full({40}, std::numeric_limits<float>::quiet_NaN()),
                       .master = at::zeros({40}),
                       .exp_avg = at::zeros({40}),
                       .exp_avg_sq = at::zeros({40}),
                       .parameter = at::zeros({40}, at::kBFloat16)};
  adamw(tensors, adamw_update({}, 1e-3, 1, 1.0));
  REQUIRE(at::isnan(tensors.parameter).all().item<bool>());
}

TEST_CASE("bias correction can be off") {
  const AdamWOptions options{.bias_correction = false};
  AdamWTensors tensors{.gradient = at::randn({100}),
                       .master = at::randn({100}),
                       .exp_avg = at::zeros({100}),
                       .exp_avg_sq = at::zeros({100}),
                       .parameter = at::zeros({100})};
  AdamWOracle oracle(tensors.master);
  oracle.update(tensors.gradient, options, 1e-3);
  adamw(tensors, adamw_update(options, 1e-3, 1, 1.0));
  REQUIRE(at::allclose(tensors.master.to(at::kDouble), oracle.weights, 1e-5, 1e-6));
}

}  // namespace mpzero::parallel
