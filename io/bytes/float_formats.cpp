#include "io/bytes/float_formats.hpp"

#include <algorithm>

namespace mpzero::io {

void from_bfloat16(std::span<const uint16_t> in, std::span<float> out) {
  std::ranges::transform(in, out.begin(), [](uint16_t bits) { return from_bfloat16(bits); });
}

void from_float16(std::span<const uint16_t> in, std::span<float> out) {
  std::ranges::transform(in, out.begin(), [](uint16_t bits) { return from_float16(bits); });
}

void to_bfloat16(std::span<const float> in, std::span<uint16_t> out) {
  std::ranges::transform(in, out.begin(), [](float value) { return to_bfloat16(value); });
}

}  // namespace mpzero::io
