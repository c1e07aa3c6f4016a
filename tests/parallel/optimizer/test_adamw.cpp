#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/ops/full.h>
#include <ATen/ops/isnan.h>
#include <fmt/format.h>

#include <algorithm>
#include <bit>
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

// The inputs and outputs of one kernel; all but the master in fp32 and, as bits, in bf16.
struct HostArrays {
  std::vector<float> gradient, master, exp_avg, exp_avg_sq, parameter;
  std::vector<Bf16Bits> low_gradient, low_exp_avg, low_exp_avg_sq, low_parameter;

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
    arrays.low_exp_avg.push_back(round_to<Bf16Bits>(arrays.exp_avg.back()));
    arrays.low_exp_avg_sq.push_back(round_to<Bf16Bits>(arrays.exp_avg_sq.back()));
  }
  arrays.parameter.resize(count);
  arrays.low_parameter.resize(count);
  return arrays;
}

// Which of the arrays are bf16.
struct Low {
  bool gradient = false, moments = false, parameter = false;
};

// The array's elements lie on both sides of position 2^32 in the model.
constexpr int64_t kFirst = (int64_t{1} << 32) - 777;

AdamWSpans spans_of(HostArrays& arrays, const Low& low, size_t begin = 0) {
  const auto choose = [begin](bool is_low, std::vector<Bf16Bits>& bits, std::vector<float>& values) {
    return is_low ? static_cast<void*>(bits.data() + begin) : values.data() + begin;
  };
  return {.gradient = choose(low.gradient, arrays.low_gradient, arrays.gradient),
          .gradient_is_bf16 = low.gradient,
          .master = arrays.master.data() + begin,
          .exp_avg = choose(low.moments, arrays.low_exp_avg, arrays.exp_avg),
          .exp_avg_sq = choose(low.moments, arrays.low_exp_avg_sq, arrays.exp_avg_sq),
          .moments_are_bf16 = low.moments,
          .parameter = choose(low.parameter, arrays.low_parameter, arrays.parameter),
          .parameter_is_bf16 = low.parameter,
          .count = static_cast<int64_t>(arrays.size() - begin),
          .first = kFirst + static_cast<int64_t>(begin)};
}

void update_by(HostKernel kernel, HostArrays& arrays, const Low& low, const AdamWUpdate& update) {
  adamw_host_range(spans_of(arrays, low), update, 0, static_cast<int64_t>(arrays.size()), kernel);
}

AdamWUpdate some_update(int step) {
  AdamWUpdate update = adamw_update({.beta2 = 0.95, .weight_decay = 0.1}, 3e-4, step, 0.37);
  update.rounding_seed = static_cast<uint32_t>(step);
  return update;
}

bool is_nan(float value) { return value != value; }
bool is_nan(Bf16Bits bits) { return is_nan(to_float(bits)); }

// The number of elements that differ. All NaNs count as equal, whatever their bits: no update is made with them.
template <typename T>
size_t num_different(const std::vector<T>& a, const std::vector<T>& b) {
  size_t different = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    if (is_nan(a[i]) && is_nan(b[i])) continue;
    if (std::memcmp(&a[i], &b[i], sizeof(T)) != 0) ++different;
  }
  return different;
}

size_t num_different(const HostArrays& a, const HostArrays& b) {
  return num_different(a.master, b.master) + num_different(a.exp_avg, b.exp_avg) +
         num_different(a.exp_avg_sq, b.exp_avg_sq) + num_different(a.parameter, b.parameter) +
         num_different(a.low_exp_avg, b.low_exp_avg) + num_different(a.low_exp_avg_sq, b.low_exp_avg_sq) +
         num_different(a.low_parameter, b.low_parameter);
}

// The portable kernel is the oracle.
void check_same_bits(HostKernel kernel) {
  if (!cpu_runs(kernel)) {
    skip_test(fmt::format("a processor with {}", name(kernel)));
    return;
  }
  for (const Low low : {Low{}, Low{.gradient = true}, Low{.parameter = true}, Low{.gradient = true, .parameter = true},
                        Low{.moments = true}, Low{.gradient = true, .moments = true},
                        Low{.moments = true, .parameter = true}, Low{true, true, true}}) {
    HostArrays portable = make_host_arrays(100'003, 7);
    HostArrays vectors = portable;
    for (int step = 1; step <= 5; ++step) {
      CAPTURE(low.gradient, low.moments, low.parameter, step);
      update_by(HostKernel::kPortable, portable, low, some_update(step));
      update_by(kernel, vectors, low, some_update(step));
      CHECK(num_different(portable, vectors) == 0);
    }
  }
}

// Updates to separate memory have the same bits as in place.
void check_separate_memory(HostKernel kernel, bool low_moments) {
  const Low low{.gradient = true, .moments = low_moments, .parameter = true};
  HostArrays in_place = make_host_arrays(5000, 9);
  HostArrays old = in_place, next = in_place;
  AdamWSpans spans = spans_of(old, low);
  const AdamWSpans to = spans_of(next, low);
  spans.next_master = to.master;
  spans.next_exp_avg = to.exp_avg;
  spans.next_exp_avg_sq = to.exp_avg_sq;
  spans.parameter = to.parameter;
  adamw_host_range(spans, some_update(3), 0, spans.count, kernel);
  CHECK(num_different(old, make_host_arrays(5000, 9)) == 0);
  update_by(kernel, in_place, low, some_update(3));
  CHECK(num_different(in_place, next) == 0);
}

// By the definitions: MurmurHash3's finalizer (Appleby), a carry from the dropped bits, in 64 bits and fp64.
uint64_t hash_of(uint64_t element, uint64_t seed) {
  constexpr uint64_t kBits = 0xFFFFFFFF;
  uint64_t h = ((element & kBits) ^ ((element >> 32) * 0x9e3779b1 & kBits) ^ seed);
  h = (h ^ h >> 16) * 0x85ebca6b & kBits;
  h = (h ^ h >> 13) * 0xc2b2ae35 & kBits;
  return h ^ h >> 16;
}
float next_bf16(float value, uint64_t random) {
  const auto magnitude = std::bit_cast<uint32_t>(std::abs(value));
  const float below = std::bit_cast<float>(magnitude & 0xFFFF0000U);
  const float above = std::bit_cast<float>((magnitude & 0xFFFF0000U) + 0x10000U);
  const double share = (std::abs(value) - static_cast<double>(below)) / (static_cast<double>(above) - below);
  return std::copysign(share * 65536 + static_cast<double>(random) >= 65536 ? above : below, value);
}

}  // namespace

TEST_CASE("host AdamW agrees with the paper's formula in fp64") { check_adamw_everywhere(at::kCPU); }

TEST_CASE("AVX-512 and portable AdamW round in the same way", "[avx512]") {
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

TEST_CASE("AdamW on the host gives the same bits with AVX-512", "[avx512]") { check_same_bits(HostKernel::kAvx512); }

TEST_CASE("AdamW on the host gives the same bits with AVX2", "[avx2]") { check_same_bits(HostKernel::kAvx2); }

TEST_CASE("AdamW on the host gives the same bits in place and in separate memory") {
  for (const HostKernel kernel : {HostKernel::kPortable, HostKernel::kAvx2, HostKernel::kAvx512}) {
    if (!cpu_runs(kernel)) continue;
    for (const bool low_moments : {false, true}) check_separate_memory(kernel, low_moments);
  }
}

TEST_CASE("AdamW on the host gives an element the same bits at any position") {
  // The last elements of a piece are not computed by full vectors.
  for (const bool low_moments : {false, true}) {
    HostArrays full = make_host_arrays(16'000, 8);
    HostArrays parts = full;
    const Low low{.moments = low_moments};
    update_by(fastest_host_kernel(), full, low, some_update(3));
    for (size_t begin = 0; begin < parts.size(); begin += 7) {
      adamw_host_range(spans_of(parts, low, begin), some_update(3), 0,
                       static_cast<int64_t>(std::min<size_t>(7, parts.size() - begin)));
    }
    CHECK(num_different(full, parts) == 0);
  }
}

// Oracles: hash_of() and next_bf16().
TEST_CASE("bf16 moments equal fp32 moments rounded by a hash of position and update") {
  for (const int step : {1, 2, 1000}) {
    HostArrays exact = make_host_arrays(4000, 10);
    // From bf16 values, whose next ones in fp32 are finite.
    for (size_t i = 0; i < exact.size(); ++i) {
      exact.gradient[i] = std::clamp(exact.gradient[i], -100.0F, 100.0F);
      for (auto [values, bits] :
           {std::pair(&exact.exp_avg, &exact.low_exp_avg), std::pair(&exact.exp_avg_sq, &exact.low_exp_avg_sq)}) {
        (*values)[i] = std::clamp((*values)[i], -100.0F, 100.0F);
        (*bits)[i] = round_to<Bf16Bits>((*values)[i]);
        (*values)[i] = to_float((*bits)[i]);
      }
    }
    HostArrays low = exact;
    update_by(HostKernel::kPortable, exact, {}, some_update(step));
    update_by(fastest_host_kernel(), low, {.moments = true}, some_update(step));
    CHECK(num_different(exact.master, low.master) == 0);
    size_t different = 0;
    for (size_t i = 0; i < exact.size(); ++i) {
      const uint64_t random = hash_of(static_cast<uint64_t>(kFirst) + i, static_cast<uint64_t>(step));
      if (to_float(low.low_exp_avg[i]) != next_bf16(exact.exp_avg[i], random & 0xFFFF)) ++different;
      if (to_float(low.low_exp_avg_sq[i]) != next_bf16(exact.exp_avg_sq[i], random >> 16)) ++different;
    }
    CHECK(different == 0);
  }
}

// Oracle: an average of a constant is the constant. With rounding to nearest, 0.999 of a bf16 number is the number.
TEST_CASE("bf16 moments decay without bias") {
  constexpr int64_t kElements = 200'000, kSteps = 1000;
  AdamWTensors tensors{.gradient = at::full({kElements}, 0.3),
                       .master = at::zeros({kElements}),
                       .exp_avg = at::full({kElements}, 5.0, at::kBFloat16),
                       .exp_avg_sq = at::full({kElements}, 5.0, at::kBFloat16),
                       .parameter = at::zeros({kElements})};
  for (int step = 1; step <= kSteps; ++step) {
    AdamWUpdate update = adamw_update({.beta1 = 0.99, .beta2 = 0.999}, 0.0, step, 1.0);
    update.rounding_seed = static_cast<uint32_t>(step);
    adamw(tensors, update);
  }
  // A rounding's standard deviation is at most half a step of bf16, which is at most 2^-7 of the value. Over the
  // elements it is 1 / sqrt(kElements) of that in the mean, whose errors add up over 1 / (1 - beta) updates.
  const auto check = [&](const at::Tensor& moment, double beta, double start, double end) {
    const double of_update = start / 256 / std::sqrt(static_cast<double>(kElements));
    CHECK(moment.to(at::kDouble).mean().item<double>() ==
          Approx(end + (start - end) * std::pow(beta, kSteps)).margin(5 * of_update / (1 - beta)));
  };
  check(tensors.exp_avg, 0.99, 5.0, 0.3);
  check(tensors.exp_avg_sq, 0.999, 5.0, 0.09);
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
                         .exp_avg = at::zeros({numel}, at::kBFloat16),
                         .exp_avg_sq = at::zeros({numel}, at::kBFloat16),
                         .parameter = at::zeros({numel}, at::kBFloat16)};
    for (int step = 1; step <= 2; ++step) adamw(tensors, some_update(step));
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

TEST_CASE("bias correction can be disabled") {
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
