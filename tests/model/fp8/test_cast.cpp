// Casts against ATen's operators and types.
#include <ATen/TensorOperators.h>
#include <ATen/ops/exp2.h>
#include <ATen/ops/floor.h>
#include <ATen/ops/full.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>

#include <cmath>
#include <limits>

#include "model/fp8/cast.hpp"
#include "tests/catch.hpp"
#include "tests/model/compare.hpp"

namespace mpzero::model::fp8 {
namespace {

constexpr Format kFormats[] = {Format::kE4m3, Format::kE5m2};
constexpr Scaling kScalings[] = {Scaling::kTensorwise, Scaling::kRowwise};

at::Tensor random(int64_t rows, int64_t columns, double size = 1.0) {
  return at::randn({rows, columns}, at::kDouble).mul_(size).to(at::kBFloat16);
}

// The powers of two, by logarithms, for the largest magnitudes along the last dimension or of all.
at::Tensor scales_of(const at::Tensor& x, Format format, Scaling scaling) {
  const double largest = format == Format::kE4m3 ? 448.0 : 57344.0;
  const at::Tensor wide = x.to(at::kDouble).abs();
  const at::Tensor maxima = scaling == Scaling::kRowwise ? wide.amax(-1) : wide.max();
  return at::exp2(at::floor(maxima.reciprocal().mul(largest).log2()));
}

at::Tensor bytes(const at::Tensor& x) { return x.view(at::kByte); }

void check_form(const Matrix& form, const at::Tensor& x, Format format, Scaling scaling) {
  const at::Tensor scales = scales_of(x, format, scaling);
  const at::Tensor factors = scaling == Scaling::kRowwise ? scales.unsqueeze(1) : scales;
  REQUIRE(form.codes.is_contiguous());
  CHECK(form.is_rowwise() == (scaling == Scaling::kRowwise));
  CHECK(bitwise_equal(form.scale_inverse, scales.reciprocal().to(at::kFloat)));
  const at::Tensor expected = x.to(at::kDouble).mul(factors).to(at::kFloat).to(scalar_type(format));
  CHECK(bitwise_equal(bytes(form.codes), bytes(expected)));
  CHECK(bitwise_equal(values(form), expected.to(at::kDouble).div(factors).to(at::kBFloat16)));
}

}  // namespace

TEST_CASE("casts rows and columns") {
  for (const auto& [rows, columns] : {std::pair{1, 1}, {1, 40}, {33, 1}, {64, 96}, {37, 130}}) {
    const at::Tensor x = random(rows, columns, 3.0);
    for (const Format format : kFormats) {
      for (const Scaling scaling : kScalings) {
        INFO(rows << " x " << columns << " " << name(scaling));
        const CastMatrix both = cast(x, format, scaling, Forms::kBoth);
        check_form(both.rows, x, format, scaling);
        check_form(both.columns, x.t().contiguous(), format, scaling);
        const CastMatrix by_rows = cast(x, format, scaling, Forms::kRows, maximum(x));
        CHECK(bitwise_equal(bytes(by_rows.rows.codes), bytes(both.rows.codes)));
        CHECK_FALSE(by_rows.columns.defined());
        const CastMatrix by_columns = cast(x, format, scaling, Forms::kColumns);
        CHECK(bitwise_equal(bytes(by_columns.columns.codes), bytes(both.columns.codes)));
        CHECK_FALSE(by_columns.rows.defined());
      }
    }
  }
}

TEST_CASE("tensorwise scaling gives rows and columns the same FP8 data") {
  const at::Tensor x = random(24, 40);
  const CastMatrix both = cast(x, Format::kE4m3, Scaling::kTensorwise, Forms::kBoth);
  CHECK(bitwise_equal(bytes(both.rows.codes).t().contiguous(), bytes(both.columns.codes)));
}

TEST_CASE("casts zeros, subnormal numbers and non-finite numbers") {
  for (const Format format : kFormats) {
    for (const Scaling scaling : kScalings) {
      const at::Tensor zeros = at::zeros({8, 16}, at::kBFloat16);
      CHECK(bitwise_equal(values(cast(zeros, format, scaling, Forms::kBoth).columns), zeros.t()));
      // A bf16 of 2^-130 is subnormal; the scale ends at 2^126, which leaves 2^-4.
      const at::Tensor tiny = at::full({8, 16}, std::ldexp(1.0, -130), at::kBFloat16);
      CHECK(bitwise_equal(values(cast(tiny, format, scaling, Forms::kRows).rows), tiny));
      for (const double bad : {std::numeric_limits<double>::infinity(), std::numeric_limits<double>::quiet_NaN()}) {
        at::Tensor x = random(8, 16);
        x[3][5].fill_(bad);
        CHECK_FALSE(std::isfinite(maximum(x).item<float>()));
        const CastMatrix both = cast(x, format, scaling, Forms::kBoth);
        CHECK(values(both.rows)[3].isnan().all().item<bool>());
        CHECK(values(both.columns)[5].isnan().all().item<bool>());
        CHECK(values(both.rows)[2].isnan().any().item<bool>() == (scaling == Scaling::kTensorwise));
      }
    }
  }
}

TEST_CASE("a saturated value is the maximum of its format") {
  const at::Tensor x = random(4, 8);
  const at::Tensor small = at::full({}, 0.01, at::kFloat);  // a maximum that is too low
  const at::Tensor cut = values(cast(x, Format::kE4m3, Scaling::kTensorwise, Forms::kRows, small).rows);
  CHECK(cut.abs().max().item<float>() == 448.0F * 0x1p-15F);
}

}  // namespace mpzero::model::fp8
