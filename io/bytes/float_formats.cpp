#include "io/bytes/float_formats.hpp"

#include <algorithm>
#include <vector>

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

void read_16bit(std::span<float> out, Widening convert,
                const std::function<void(int64_t, std::span<std::byte>)>& read) {
  constexpr size_t kBlock = size_t{1} << 18;  // 512 KiB
  std::vector<uint16_t> bits(std::min(out.size(), kBlock));
  for (size_t done = 0; done < out.size(); done += bits.size()) {
    bits.resize(std::min(bits.size(), out.size() - done));
    read(static_cast<int64_t>(done * sizeof(uint16_t)), std::as_writable_bytes(std::span(bits)));
    convert(bits, out.subspan(done));
  }
}

}  // namespace mpzero::io
