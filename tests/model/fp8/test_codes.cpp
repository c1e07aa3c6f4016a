// Casts of parts against casts of the whole matrix.
#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>

#include <cmath>
#include <limits>

#include "model/fp8/cast.hpp"
#include "model/fp8/codes.hpp"
#include "tests/catch.hpp"
#include "tests/model/compare.hpp"

namespace mpzero::model::fp8 {
namespace {

at::Tensor bytes(const at::Tensor& x) { return x.view(at::kByte); }
at::Tensor bits(const at::Tensor& x) { return x.view(at::kInt); }

struct Parts {
  at::Tensor codes, scales;
};

// x cast in parts that end at `ends`, with a second matrix of ones beside it.
Parts cast_in_parts(const at::Tensor& x, Format format, const std::vector<int64_t>& ends) {
  const at::Tensor flat = x.flatten();
  const auto count = static_cast<int64_t>(ends.size());
  const at::Tensor maxima = at::zeros({count, 2}, at::kFloat);
  Parts made{at::empty({flat.numel()}, at::kByte), at::full({2, 2}, -1, at::kFloat)};
  for (int64_t part = 0, begin = 0; part < count; begin = ends[static_cast<size_t>(part++)]) {
    raise_maximum(flat.narrow(0, begin, ends[static_cast<size_t>(part)] - begin), maxima[part][0]);
    raise_maximum(at::full({3}, 1, at::kBFloat16), maxima[part][1]);
  }
  scales_out(maxima, format, made.scales);
  for (int64_t part = 0, begin = 0; part < count; begin = ends[static_cast<size_t>(part++)]) {
    const int64_t length = ends[static_cast<size_t>(part)] - begin;
    encode_out(flat.narrow(0, begin, length), made.scales[0][0], format, made.codes.narrow(0, begin, length));
  }
  return made;
}

}  // namespace

TEST_CASE("casts in parts equal the cast of the whole") {
  const at::Tensor values = at::randn({31, 40}, at::kFloat).to(at::kBFloat16);
  at::Tensor with_nan = values.clone(), with_infinity = values.clone();
  with_nan[30][39] = std::nan("");
  with_infinity[0][0] = -std::numeric_limits<double>::infinity();
  for (const Format format : {Format::kE4m3, Format::kE5m2}) {
    for (const at::Tensor& x : {values, values * 1e-30, values * 0, values * 1e30, with_nan, with_infinity}) {
      for (const std::vector<int64_t>& ends :
           {std::vector<int64_t>{1240}, {1, 1240}, {600, 600, 1240}, {40, 400, 401, 1239, 1240}}) {
        INFO(ends.size() << " parts, format " << static_cast<int>(format));
        const CastMatrix whole = reference::cast(x.contiguous(), format, Scaling::kTensorwise, Forms::kBoth);
        const Parts made = cast_in_parts(x.contiguous(), format, ends);
        CHECK(bitwise_equal(made.codes.view(x.sizes()), bytes(whole.rows.codes)));
        CHECK(bitwise_equal(bits(made.scales[0][0]), bits(whole.maxima)));
        CHECK(bitwise_equal(bits(made.scales[1][0]), bits(whole.rows.scale_inverse)));
        CHECK(made.scales[0][1].item<float>() == 1);
        const at::Tensor codes = made.codes.view(x.sizes()).view(scalar_type(format));
        CHECK(bitwise_equal(bytes(transposed(codes)), bytes(whole.columns.codes)));
        CHECK(transposed(codes).scalar_type() == scalar_type(format));
      }
    }
  }
}

TEST_CASE("a maximum is only raised, and NaN is kept") {
  const at::Tensor largest = at::full({}, 2, at::kFloat);
  raise_maximum(at::full({5}, -1, at::kBFloat16), largest);
  CHECK(largest.item<float>() == 2);
  raise_maximum(at::full({5}, -3, at::kBFloat16), largest);
  CHECK(largest.item<float>() == 3);
  raise_maximum(at::full({5}, std::nan(""), at::kBFloat16), largest);
  CHECK(std::isnan(largest.item<float>()));
  raise_maximum(at::full({5}, 1e30, at::kBFloat16), largest);
  CHECK(std::isnan(largest.item<float>()));
}

TEST_CASE("transposes FP8 data") {
  for (const auto& [rows, columns] : {std::pair{1, 1}, {1, 40}, {33, 1}, {64, 96}, {37, 130}}) {
    const at::Tensor codes = at::randint(256, {rows, columns}, at::kByte);
    CHECK(bitwise_equal(transposed(codes), codes.t().contiguous()));
  }
}

}  // namespace mpzero::model::fp8
