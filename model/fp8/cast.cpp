#include "model/fp8/cast.hpp"

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <c10/util/BFloat16.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <vector>

#include "base/device/simulated.hpp"
#include "model/fp8/cuda.hpp"

namespace mpzero::model::fp8 {
namespace {

using Bits = std::vector<uint32_t>;

constexpr int64_t kRowsAThread = 16;

// Returns the magnitude as fp32 bits, which have the same order as magnitudes. NaN sorts above infinity.
uint32_t magnitude(c10::BFloat16 x) { return static_cast<uint32_t>(x.x & 0x7fff) << 16; }

Bits row_maxima(const c10::BFloat16* x, int64_t rows, int64_t columns) {
  Bits maxima(static_cast<size_t>(rows));
  at::parallel_for(0, rows, kRowsAThread, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      uint32_t largest = 0;
      for (int64_t c = 0; c < columns; ++c) largest = std::max(largest, magnitude(x[row * columns + c]));
      maxima[static_cast<size_t>(row)] = largest;
    }
  });
  return maxima;
}

Bits column_maxima(const c10::BFloat16* x, int64_t rows, int64_t columns) {
  Bits maxima(static_cast<size_t>(columns));
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t c = 0; c < columns; ++c) {
      uint32_t& largest = maxima[static_cast<size_t>(c)];
      largest = std::max(largest, magnitude(x[row * columns + c]));
    }
  }
  return maxima;
}

at::Tensor tensor_of(const Bits& maxima) {
  at::Tensor made = at::empty({static_cast<int64_t>(maxima.size())}, at::kFloat);
  std::memcpy(made.mutable_data_ptr(), maxima.data(), maxima.size() * sizeof(float));
  return made;
}

// Returns the scales for `maxima` and writes their inverses to a tensor of the same size.
std::vector<float> scales_of(Format format, const Bits& maxima, at::Tensor& inverse) {
  float* inverses = inverse.mutable_data_ptr<float>();
  std::vector<float> scales;
  for (const uint32_t maximum : maxima) {
    const Scale scale = scale_for(format, maximum);
    scales.push_back(std::bit_cast<float>(scale.bits));
    *inverses++ = std::bit_cast<float>(scale.inverse_bits);
  }
  return scales;
}

// Casts the numbers at x[row * row_step + k * step] to an FP8 matrix [M, K].
Matrix encode_rows(const c10::BFloat16* x, int64_t rows, int64_t inner, int64_t row_step, int64_t step, Format format,
                   Scaling scaling, const Bits& maxima) {
  const bool shares = scaling == Scaling::kTensorwise;
  Matrix made{at::empty({rows, inner}, scalar_type(format)),
              shares ? at::empty({}, at::kFloat) : at::empty({rows}, at::kFloat)};
  const std::vector<float> scales = scales_of(format, maxima, made.scale_inverse);
  auto* codes = static_cast<uint8_t*>(made.codes.mutable_data_ptr());
  at::parallel_for(0, rows, kRowsAThread, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const float scale = scales[shares ? 0 : static_cast<size_t>(row)];
      for (int64_t k = 0; k < inner; ++k) {
        codes[row * inner + k] = encode(format, static_cast<float>(x[row * row_step + k * step]) * scale);
      }
    }
  });
  return made;
}

CastMatrix simulated_cast(const at::Tensor& x, Format format, Scaling scaling, Forms forms,
                          const at::Tensor& maximum_of_x) {
  const at::TensorOptions wide = x.options().dtype(at::kFloat);
  const bool rowwise = scaling == Scaling::kRowwise;
  const auto form = [&](int64_t rows, int64_t inner) -> Matrix {
    return {at::empty({rows, inner}, x.options().dtype(scalar_type(format))),
            rowwise ? at::empty({rows}, wide) : at::empty({}, wide)};
  };
  CastMatrix made;
  if (has_rows(forms)) made.rows = form(x.size(0), x.size(1));
  if (has_columns(forms)) made.columns = form(x.size(1), x.size(0));
  if (rowwise) made.maxima = at::empty({x.size(has_rows(forms) ? 0 : 1)}, wide);
  if (!rowwise) made.maxima = maximum_of_x.defined() ? maximum_of_x : at::empty({}, wide);
  return made;
}

}  // namespace

Matrix Matrix::narrow(int64_t begin, int64_t count) const {
  return {codes.narrow(0, begin, count), is_rowwise() ? scale_inverse.narrow(0, begin, count) : scale_inverse};
}

at::Tensor values(const Matrix& matrix) {
  if (!matrix.codes.is_cpu()) {
    const at::Tensor scale = matrix.is_rowwise() ? matrix.scale_inverse.unsqueeze(1) : matrix.scale_inverse;
    return matrix.codes.to(at::kFloat).mul_(scale).to(at::kBFloat16);
  }
  const Format format = matrix.codes.scalar_type() == at::kFloat8_e4m3fn ? Format::kE4m3 : Format::kE5m2;
  std::array<float, 256> numbers{};
  for (size_t code = 0; code < numbers.size(); ++code) numbers[code] = decode(format, static_cast<uint8_t>(code));
  const at::Tensor codes = matrix.codes.contiguous(), scales = matrix.scale_inverse.contiguous();
  at::Tensor out = at::empty(codes.sizes(), at::kBFloat16);
  const auto* from = static_cast<const uint8_t*>(codes.const_data_ptr());
  auto* to = out.mutable_data_ptr<c10::BFloat16>();
  const auto* scale = scales.const_data_ptr<float>();
  const int64_t inner = codes.size(1), step = matrix.is_rowwise() ? 1 : 0;
  at::parallel_for(0, codes.size(0), kRowsAThread, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      for (int64_t k = row * inner; k < (row + 1) * inner; ++k) {
        to[k] = static_cast<c10::BFloat16>(numbers[from[k]] * scale[row * step]);
      }
    }
  });
  return out;
}

at::Tensor maximum(const at::Tensor& x) {
  if (is_simulated(x.device())) return at::empty({}, x.options().dtype(at::kFloat));
  return x.is_cuda() ? cuda::maximum(x) : reference::maximum(x);
}

CastMatrix cast(const at::Tensor& x, Format format, Scaling scaling, Forms forms, const at::Tensor& maximum_of_x) {
  const bool rowwise = scaling == Scaling::kRowwise, known_maximum = !rowwise && maximum_of_x.defined();
  const char* const name = rowwise ? "fp8_cast_rowwise" : known_maximum ? "fp8_cast" : "fp8_cast_maximum";
  const OperationScope scope(name, [&] {
    // Each form is half as large as x. Computing the maximum reads x again.
    const double passes = (known_maximum ? 1 : 2) + (forms == Forms::kBoth ? 1 : 0.5);
    Operation operation = on_matrix(x.scalar_type(), x.size(0), x.size(1), passes);
    operation.copy_share = rowwise ? kRowwiseCopyShare : kCopyShare;
    return operation;
  });
  TORCH_CHECK(x.dim() == 2 && x.is_contiguous() && x.scalar_type() == at::kBFloat16 && x.numel() > 0,
              "fp8::cast expects a contiguous bf16 matrix");
  if (is_simulated(x.device())) return simulated_cast(x, format, scaling, forms, maximum_of_x);
  const auto& make = x.is_cuda() ? cuda::cast : reference::cast;
  return make(x, format, scaling, forms, maximum_of_x);
}

namespace reference {

at::Tensor maximum(const at::Tensor& x) {
  const at::Tensor flat = x.contiguous();
  const Bits maxima = row_maxima(flat.const_data_ptr<c10::BFloat16>(), 1, flat.numel());
  at::Tensor made = at::empty({}, at::kFloat);
  *made.mutable_data_ptr<float>() = std::bit_cast<float>(maxima.front());
  return made;
}

CastMatrix cast(const at::Tensor& x, Format format, Scaling scaling, Forms forms, const at::Tensor& maximum_of_x) {
  const int64_t rows = x.size(0), columns = x.size(1);
  const auto* data = x.const_data_ptr<c10::BFloat16>();
  const bool shares = scaling == Scaling::kTensorwise;
  CastMatrix made;
  Bits all;
  if (shares) {
    made.maxima = maximum_of_x.defined() ? maximum_of_x : maximum(x);
    all = {std::bit_cast<uint32_t>(*made.maxima.const_data_ptr<float>())};
  }
  if (has_rows(forms)) {
    const Bits maxima = shares ? all : row_maxima(data, rows, columns);
    made.rows = encode_rows(data, rows, columns, columns, 1, format, scaling, maxima);
    if (!shares) made.maxima = tensor_of(maxima);
  }
  if (has_columns(forms)) {
    const Bits maxima = shares ? all : column_maxima(data, rows, columns);
    made.columns = encode_rows(data, columns, rows, 1, columns, format, scaling, maxima);
    if (!made.maxima.defined()) made.maxima = tensor_of(maxima);
  }
  return made;
}

}  // namespace reference
}  // namespace mpzero::model::fp8
