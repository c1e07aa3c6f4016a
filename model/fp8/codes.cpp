#include "model/fp8/codes.hpp"

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <c10/util/BFloat16.h>

#include <algorithm>
#include <bit>
#include <vector>

#include "base/device/simulated.hpp"
#include "model/fp8/cast.hpp"
#include "model/fp8/cuda.hpp"

namespace mpzero::model::fp8 {
namespace {

constexpr int64_t kNumbersAThread = 1 << 14;
constexpr int64_t kColumnsAThread = 16;

float scalar(const at::Tensor& x) { return *x.const_data_ptr<float>(); }

// Returns the larger magnitude. The bits of magnitudes have the same order as magnitudes, and NaN sorts above infinity.
float larger(float a, float b) { return std::bit_cast<uint32_t>(a) >= std::bit_cast<uint32_t>(b) ? a : b; }

}  // namespace

void raise_maximum(const at::Tensor& x, const at::Tensor& largest) {
  TORCH_CHECK(x.is_contiguous() && x.scalar_type() == at::kBFloat16,
              "fp8::raise_maximum expects a contiguous bf16 tensor");
  x.is_cuda() ? cuda::raise_maximum(x, largest) : reference::raise_maximum(x, largest);
}

void scales_out(const at::Tensor& maxima, Format format, const at::Tensor& scales) {
  TORCH_CHECK(
      maxima.is_contiguous() && scales.is_contiguous() && scales.size(0) == 2 && scales.size(1) == maxima.size(1),
      "fp8::scales_out expects contiguous maxima [parts, matrices] and scales [2, matrices]");
  maxima.is_cuda() ? cuda::scales_out(maxima, format, scales) : reference::scales_out(maxima, format, scales);
}

void encode_out(const at::Tensor& x, const at::Tensor& maximum, Format format, const at::Tensor& codes) {
  TORCH_CHECK(x.is_contiguous() && x.scalar_type() == at::kBFloat16 && codes.is_contiguous() &&
                  codes.numel() == x.numel() && codes.element_size() == 1,
              "fp8::encode_out expects a contiguous bf16 tensor and contiguous 8-bit codes of the same size");
  x.is_cuda() ? cuda::encode_out(x, maximum, format, codes) : reference::encode_out(x, maximum, format, codes);
}

at::Tensor transposed(const at::Tensor& codes) {
  // Uses the dtype of the original weight.
  const OperationScope scope("fp8_transpose", [&] {
    Operation operation = on_matrix(at::kBFloat16, codes.size(0), codes.size(1), 1);  // one byte read, one written
    operation.copy_share = kCopyShare;
    return operation;
  });
  TORCH_CHECK(codes.dim() == 2 && codes.is_contiguous() && codes.element_size() == 1,
              "fp8::transposed expects a contiguous 8-bit matrix");
  if (is_simulated(codes.device())) return at::empty({codes.size(1), codes.size(0)}, codes.options());
  return codes.is_cuda() ? cuda::transposed(codes) : reference::transposed(codes);
}

namespace reference {

void raise_maximum(const at::Tensor& x, const at::Tensor& largest) {
  *largest.mutable_data_ptr<float>() = larger(scalar(largest), scalar(maximum(x)));
}

void scales_out(const at::Tensor& maxima, Format format, const at::Tensor& scales) {
  const int64_t parts = maxima.size(0), matrices = maxima.size(1);
  const float* of_parts = maxima.const_data_ptr<float>();
  float* made = scales.mutable_data_ptr<float>();
  for (int64_t matrix = 0; matrix < matrices; ++matrix) {
    float largest = 0;
    for (int64_t part = 0; part < parts; ++part) largest = larger(largest, of_parts[part * matrices + matrix]);
    made[matrix] = largest;
    made[matrices + matrix] = std::bit_cast<float>(scale_for(format, std::bit_cast<uint32_t>(largest)).inverse_bits);
  }
}

void encode_out(const at::Tensor& x, const at::Tensor& maximum, Format format, const at::Tensor& codes) {
  const float scale = std::bit_cast<float>(scale_for(format, std::bit_cast<uint32_t>(scalar(maximum))).bits);
  const auto* from = x.const_data_ptr<c10::BFloat16>();
  auto* to = static_cast<uint8_t*>(codes.mutable_data_ptr());
  at::parallel_for(0, x.numel(), kNumbersAThread, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) to[i] = encode(format, static_cast<float>(from[i]) * scale);
  });
}

at::Tensor transposed(const at::Tensor& codes) {
  const int64_t rows = codes.size(0), columns = codes.size(1);
  at::Tensor made = at::empty({columns, rows}, codes.options());
  const auto* from = static_cast<const uint8_t*>(codes.const_data_ptr());
  auto* to = static_cast<uint8_t*>(made.mutable_data_ptr());
  at::parallel_for(0, columns, kColumnsAThread, [&](int64_t begin, int64_t end) {
    for (int64_t column = begin; column < end; ++column) {
      for (int64_t row = 0; row < rows; ++row) to[column * rows + row] = from[row * columns + column];
    }
  });
  return made;
}

}  // namespace reference
}  // namespace mpzero::model::fp8
