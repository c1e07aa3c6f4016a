#include <ATen/TensorOperators.h>
#include <ATen/ops/add.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>

#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "base/error.hpp"
#include "parallel/host/part_sum.hpp"
#include "tests/catch.hpp"
#include "tests/parallel/same_bits.hpp"

namespace mpzero::parallel {
namespace {

at::Tensor sum_of(const std::vector<at::Tensor>& parts, bool add, const at::Tensor& sum) {
  std::vector<const void*> addresses;
  for (const at::Tensor& part : parts) addresses.push_back(part.const_data_ptr());
  sum_parts(addresses, parts.front().scalar_type(), sum.numel(), add, sum.data_ptr(), sum.scalar_type());
  return sum;
}

}  // namespace

TEST_CASE("parts are added in order in fp32 or fp64 and rounded once, like ATen") {
  using at::kBFloat16, at::kDouble, at::kFloat;
  for (const auto& [from, to] : {std::pair(kBFloat16, kBFloat16),
                                 {kBFloat16, kFloat},
                                 {kFloat, kFloat},
                                 {kFloat, kBFloat16},
                                 {kDouble, kDouble}}) {
    for (const int64_t n : {1, 7, 2048, 5001}) {
      for (const int count : {1, 2, 5}) {
        for (const bool add : {false, true}) {
          const at::ScalarType wide = from == kDouble ? kDouble : kFloat;
          std::vector<at::Tensor> parts;
          at::Tensor total;
          for (int p = 0; p < count; ++p) {
            parts.push_back(at::randn({n}, at::kDouble).to(from));
            total = p == 0 ? parts[0].to(wide) : total + parts.back().to(wide);
          }
          const at::Tensor before = at::randn({n}, at::kDouble).to(to);
          if (add) total = before.to(wide) + total;
          INFO(c10::toString(from) << " into " << c10::toString(to) << ", " << n << " x " << count << ", add " << add);
          REQUIRE(same_bits(sum_of(parts, add, before.clone()), total.to(to)));
          // The sum may lie where a part does.
          if (from == to && !add) REQUIRE(same_bits(sum_of(parts, add, parts.back()), total.to(to)));
        }
      }
    }
  }
}

TEST_CASE("non-finite values and ties are rounded like ATen") {
  const float infinity = std::numeric_limits<float>::infinity();
  const at::Tensor part = at::zeros({7});
  // The last one: rounding its bits as a number's would make it -0.
  const std::vector<float> values{
      infinity, -infinity, std::nanf(""), 3.4e38F, 1.00390625F, 1.01171875F, std::bit_cast<float>(0x7FFFFFFFU)};
  std::copy(values.begin(), values.end(), part.data_ptr<float>());
  const at::Tensor rounded = sum_of({part}, /*add=*/false, at::zeros({7}, at::kBFloat16));
  const at::Tensor expected = part.to(at::kBFloat16);
  for (const int64_t i : {2, 6}) CHECK(std::isnan(rounded[i].item<float>()));
  for (const int64_t i : {0, 1, 3, 4, 5}) CHECK(same_bits(rounded[i], expected[i]));
}

TEST_CASE("sums of other dtypes are refused") {
  const at::Tensor numbers = at::zeros({3}, at::kLong);
  CHECK_THROWS_AS(sum_of({numbers}, /*add=*/false, numbers), Failure);
  CHECK_THROWS_AS(sum_of({at::zeros({3}, at::kDouble)}, /*add=*/false, at::zeros({3})), Failure);
}

}  // namespace mpzero::parallel
