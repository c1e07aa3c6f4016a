#include <ATen/TensorOperators.h>
#include <ATen/ops/full.h>
#include <ATen/ops/randn.h>

#include <array>
#include <limits>

#include "model/fp8/cast.hpp"
#include "model/matmuls.hpp"
#include "tests/catch.hpp"
#include "tests/model/compare.hpp"

namespace mpzero::model {
namespace {

at::Tensor wide(const at::Tensor& x) { return x.to(at::kDouble); }

}  // namespace

// The oracle is the product in fp64.
TEST_CASE("matmuls on the CPU") {
  Matmuls matmuls;
  for (const auto& [type, gradient_type, tolerance] :
       std::vector<std::tuple<at::ScalarType, at::ScalarType, double>>{{at::kDouble, at::kDouble, 1e-13},
                                                                       {at::kFloat, at::kFloat, 1e-5},
                                                                       {at::kBFloat16, at::kBFloat16, 2e-2},
                                                                       {at::kBFloat16, at::kFloat, 1e-2}}) {
    for (const auto& [rows, in, out] :
         std::vector<std::array<int64_t, 3>>{{1, 8, 16}, {7, 9, 11}, {50, 64, 24}, {96, 64, 160}}) {
      INFO(type << " " << gradient_type << " " << rows << "x" << in << "x" << out);
      const at::Tensor a = at::randn({rows, in}).to(type), weight = at::randn({out, in}).to(type);
      const at::Tensor dy = at::randn({rows, out}).to(type), bias = at::randn({out}).to(type);
      const at::Tensor product = wide(a).matmul(wide(weight).t());
      CHECK(relative_error(matmuls.forward(a, weight), product) < tolerance);
      CHECK(relative_error(matmuls.forward(a, weight, bias), product + wide(bias)) < tolerance);
      CHECK(relative_error(matmuls.forward(a, weight, dy), product + wide(dy)) < tolerance);
      CHECK(relative_error(matmuls.data_gradient(dy, weight), wide(dy).matmul(wide(weight))) < tolerance);

      const at::Tensor expected = wide(dy).t().matmul(wide(a));
      at::Tensor gradient = at::full({out, in}, std::numeric_limits<double>::quiet_NaN(), gradient_type);
      matmuls.weight_gradient_out(gradient, dy, a);
      CHECK(relative_error(gradient, expected) < tolerance);
      matmuls.weight_gradient_out(gradient, dy, a, /*accumulate=*/true);
      CHECK(relative_error(gradient, expected * 2) < tolerance);
    }
  }
  CHECK(matmuls.tuned().empty());
  CHECK(matmuls.tuning_seconds() == 0);
}

TEST_CASE("tensorwise and rowwise operands cannot be multiplied") {
  Matmuls matmuls;
  const at::Tensor x = at::randn({16, 32}).to(at::kBFloat16);
  const auto cast = [&](fp8::Scaling scaling) -> Operand {
    fp8::CastMatrix made = fp8::cast(x, fp8::Format::kE4m3, scaling, fp8::Forms::kBoth);
    return {std::move(made.rows), std::move(made.columns)};
  };
  const Operand whole = cast(fp8::Scaling::kTensorwise), by_row = cast(fp8::Scaling::kRowwise);
  CHECK_THROWS_AS(matmuls.forward(whole, by_row), c10::Error);
  CHECK_THROWS_AS(matmuls.forward(by_row, whole), c10::Error);
  CHECK_NOTHROW(matmuls.forward(by_row, by_row));
}

}  // namespace mpzero::model
