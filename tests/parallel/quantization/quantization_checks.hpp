#pragma once

#include <ATen/ATen.h>

#include <cmath>
#include <vector>

#include "parallel/quantization/quantize.hpp"
#include "tests/catch.hpp"

namespace mpzero::parallel {

// Returns the dequantized values of a message in fp64, as specified in BlockFormat and independent of the kernels that
// read messages.
inline at::Tensor decoded(const at::Tensor& message, int64_t count, const BlockFormat& format) {
  const at::Tensor bytes = message.cpu().contiguous();
  const auto* const codes = bytes.const_data_ptr<uint8_t>();
  const auto* const scales = reinterpret_cast<const float*>(codes + format.code_bytes(count));
  const at::Tensor values = at::zeros({count}, at::kDouble);
  auto* const out = values.data_ptr<double>();
  for (int64_t i = 0; i < count; ++i) {
    int code = 0;
    if (format.bits == 8) {
      code = codes[i] < 128 ? codes[i] : codes[i] - 256;
    } else {
      code = i % 2 == 0 ? codes[i / 2] % 16 : codes[i / 2] / 16;
      if (code >= 8) code -= 16;
    }
    REQUIRE(std::abs(code) <= format.largest_code);
    out[i] = code * static_cast<double>(scales[i / format.block]);
  }
  return values;
}

// Returns the quantization step of each element: the amax of its block, divided by the largest code.
inline at::Tensor steps_of(const at::Tensor& values, const BlockFormat& format) {
  const at::Tensor steps = at::zeros({values.numel()}, at::kDouble);
  for (int64_t begin = 0; begin < values.numel(); begin += format.block) {
    const int64_t count = std::min(format.block, values.numel() - begin);
    const at::Tensor block = values.cpu().to(at::kDouble).narrow(0, begin, count);
    steps.narrow(0, begin, count).copy_(block.abs().max().expand({count}) / format.largest_code);
  }
  return steps;
}

// Returns values of very different magnitudes; some blocks contain only zeros, one large element, or only tiny
// elements.
inline at::Tensor mixed_values(int64_t count, uint64_t seed) {
  at::manual_seed(seed);
  at::Tensor values = at::randn({count}) * at::exp(at::randn({count}));
  if (count > 256) values.narrow(0, 0, 256).zero_();
  if (count > 512) values.narrow(0, 256, 256).mul_(1e-35);
  if (count > 768) values[600] = 1e4;
  return values;
}

inline at::Tensor empty_message(int64_t count, const BlockFormat& format, at::Device device, int64_t rows = 0) {
  const auto bytes = at::TensorOptions().dtype(at::kByte).device(device);
  const int64_t size = format.message_bytes(count);
  return rows == 0 ? at::zeros({size}, bytes) : at::zeros({rows, size}, bytes);
}

}  // namespace mpzero::parallel
