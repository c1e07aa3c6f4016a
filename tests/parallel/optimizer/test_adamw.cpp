#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/ops/full.h>
#include <ATen/ops/isnan.h>
#include <fmt/format.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "parallel/optimizer/adamw_avx512.hpp"
#include "parallel/optimizer/adamw_kernels.hpp"
#include "parallel/optimizer/bf16_bits.hpp"
#include "tests/parallel/adamw_checks.hpp"
#include "tests/skip.hpp"

namespace mpzero::parallel {
namespace {

// The inputs and outputs of one kernel; gradient and parameter in fp32 and, as bits, in bf16.
struct HostArrays {
  std::vector<float> gradient, master, exp_avg, exp_avg_sq, parameter;
  std::vector<Bf16Bits> low_gradient, low_parameter;

  size_t size() const { return master.size(); }
};

// Numbers of all magnitudes, including zeros, denormals and infinities; moments like an optimizer's.
HostArrays make_host_arrays(size_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<float> mantissa(-1.0F, 1.0F);
  std::uniform_int_distribution<int> ordinary(-20, 2), extreme(-149, 127), one_in(0, 63);
  const auto number = [&] {
    const int exponent = one_in(random) == 0 ? extreme(random) : ordinary(random);
    const float value = std::ldexp(mantissa(random), exponent);
    const int odd = one_in(random);
    if (odd == 0) return std::copysign(0.0F, value);
    if (odd == 1 && one_in(random) == 0) return std::copysign(std::numeric_limits<float>::infinity(), value);
    return value;
  };
  HostArrays arrays;
  for (size_t i = 0; i < count; ++i) {
    arrays.gradient.push_back(number());
    arrays.low_gradient.push_back(round_to<Bf16Bits>(arrays.gradient.back()));
    arrays.master.push_back(number());
    arrays.exp_avg.push_back(number());
    arrays.exp_avg_sq.push_back(std::abs(number()));
  }
  arrays.parameter.resize(count);
  arrays.low_parameter.resize(count);
  return arrays;
}

void update_by(HostKernel kernel, HostArrays& arrays, bool low_gradient, bool low_parameter,
               const AdamWUpdate& update) {
  const auto count = static_cast<int64_t>(arrays.size());
  const AdamWSpans spans{
      .gradient = low_gradient ? static_cast<const void*>(arrays.low_gradient.data()) : arrays.gradient.data(),
      .gradient_is_bf16 = low_gradient,
      .master = arrays.master.data(),
      .exp_avg = arrays.exp_avg.data(),
      .exp_avg_sq = arrays.exp_avg_sq.data(),
      .moments_are_bf16 = false,
      .parameter = low_parameter ? static_cast<void*>(arrays.low_parameter.data()) : arrays.parameter.data(),
      .parameter_is_bf16 = low_parameter,
      .count = count,
      .first = 0};
  adamw_host_range(spans, update, 0, count, kernel);
}

// The number of elements that differ. All NaNs count as equal, whatever their bits: no update is made with them.
template <typename T>
size_t num_different(const std::vector<T>& a, const std::vector<T>& b) {
  size_t different = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    if (a[i] != a[i] && b[i] != b[i]) continue;
    if (std::memcmp(&a[i], &b[i], sizeof(T)) != 0) ++different;
  }
  return different;
}

// The portable kernel is the oracle.
void check_same_bits(HostKernel kernel) {
  if (!cpu_runs(kernel)) {
    skip_test(fmt::format("a processor with {}", name(kernel)));
    return;
  }
  for (const bool low_gradient : {false, true}) {
    for (const bool low_parameter : {false, true}) {
      HostArrays portable = make_host_arrays(100'003, 7);
      HostArrays vectors = portable;
      for (int step = 1; step <= 5; ++step) {
        INFO("gradient in bf16 " << low_gradient << ", parameter in bf16 " << low_parameter << ", update " << step);
        const AdamWUpdate update = adamw_update({.beta2 = 0.95, .weight_decay = 0.1}, 3e-4, step, 0.37);
        update_by(HostKernel::kPortable, portable, low_gradient, low_parameter, update);
        update_by(kernel, vectors, low_gradient, low_parameter, update);
        CHECK(num_different(portable.master, vectors.master) == 0);
        CHECK(num_different(portable.exp_avg, vectors.exp_avg) == 0);
        CHECK(num_different(portable.exp_avg_sq, vectors.exp_avg_sq) == 0);
        CHECK(num_different(portable.parameter, vectors.parameter) == 0);
        CHECK(num_different(portable.low_parameter, vectors.low_parameter) == 0);
      }
    }
  }
}

}  // namespace

TEST_CASE("host AdamW agrees with the paper's formula in fp64") { check_adamw_everywhere(at::kCPU); }

TEST_CASE("AVX-512 and portable AdamW round the same way", "[avx512]") {
  if (!cpu_has_avx512()) {
    skip_test("a processor with AVX-512");
    return;
  }
  // Magnitudes from denormal to huge, ties of the rounding, infinities: with decay 1 and a zero gradient the master is
  // unchanged and is rounded.
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

TEST_CASE("AdamW on the host has the same bits with AVX-512", "[avx512]") { check_same_bits(HostKernel::kAvx512); }

TEST_CASE("AdamW on the host has the same bits with AVX2", "[avx2]") { check_same_bits(HostKernel::kAvx2); }

TEST_CASE("AdamW on the host gives an element the same bits at any position") {
  // The last elements of a piece are not computed by full vectors.
  HostArrays full = make_host_arrays(16'000, 8);
  HostArrays last = full;
  const AdamWUpdate update = adamw_update({.beta2 = 0.95, .weight_decay = 0.1}, 3e-4, 3, 0.37);
  update_by(fastest_host_kernel(), full, false, false, update);
  for (size_t begin = 0; begin < last.size(); begin += 7) {
    const int64_t count = static_cast<int64_t>(std::min<size_t>(7, last.size() - begin));
    adamw_host_range({.gradient = last.gradient.data() + begin,
                      .gradient_is_bf16 = false,
                      .master = last.master.data() + begin,
                      .exp_avg = last.exp_avg.data() + begin,
                      .exp_avg_sq = last.exp_avg_sq.data() + begin,
                      .moments_are_bf16 = false,
                      .parameter = last.parameter.data() + begin,
                      .parameter_is_bf16 = false,
                      .count = count,
                      .first = 0},
                     update, 0, count);
  }
  CHECK(num_different(full.master, last.master) == 0);
  CHECK(num_different(full.exp_avg, last.exp_avg) == 0);
  CHECK(num_different(full.exp_avg_sq, last.exp_avg_sq) == 0);
}

TEST_CASE("sums of squares agree with fp64 and are reproducible") { check_sum_of_squares(at::kCPU); }

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

TEST_CASE("a NaN gradient stays NaN in the rounded parameter") {
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
