#include "model/initializer.hpp"

#include <ATen/Parallel.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <thread>
#include <vector>

#include "model/architecture/architectures.hpp"

// Compiles the same arithmetic for several instruction sets; the CPU is detected at program start. All results are
// equal, because this file is compiled without fused multiply-add and calls only one library function, the correctly
// rounded square root.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(__SANITIZE_ADDRESS__)
#define MPZERO_CLONES __attribute__((target_clones("arch=skylake-avx512", "avx2", "default")))
#else
#define MPZERO_CLONES
#endif

namespace mpzero::model {
namespace {

constexpr int64_t kBlock = 1024;  // elements generated at a time, from half as many pairs

// Finalizer of SplitMix64 (Steele, Lea and Flood, 2014): a bijection that mixes all bits.
constexpr uint64_t mix(uint64_t z) {
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

constexpr uint64_t kGolden = 0x9e3779b97f4a7c15u;

uint64_t parameter_key(uint64_t seed, const std::string& name) {
  uint64_t hash = mix(seed + kGolden);
  for (const char c : name) hash = mix(hash ^ static_cast<unsigned char>(c)) + kGolden;
  return hash;
}

// Returns ln(u) for normal numbers 0 < u <= 1: the exponent times ln 2, plus 2 artanh((m - 1) / (m + 1)) for the
// mantissa m in [sqrt(1/2), sqrt(2)).
inline float logarithm(float u) {
  const int32_t bits = std::bit_cast<int32_t>(u);
  const int32_t exponent = (bits - 0x3f3504f3) >> 23;  // 0x3f3504f3: bits of sqrt(1/2)
  const float m = std::bit_cast<float>(bits - exponent * (1 << 23));
  const float s = (m - 1.0f) / (m + 1.0f);
  const float s2 = s * s;
  const float series = 2.0f * s * (1.0f + s2 * (1.0f / 3 + s2 * (1.0f / 5 + s2 * (1.0f / 7 + s2 * (1.0f / 9)))));
  return static_cast<float>(exponent) * 0.693147180559945f + series;
}

// Writes pairs [first, first + kBlock / 2) of the stream `key` as normally distributed numbers (Box and Muller, 1958).
MPZERO_CLONES void normal_block(uint64_t key, uint64_t first, float deviation, float* out) {
  uint32_t radius_bits[kBlock / 2];
  uint32_t angle_bits[kBlock / 2];
  for (int64_t i = 0; i < kBlock / 2; ++i) {
    const uint64_t z = mix(key + (first + static_cast<uint64_t>(i) + 1) * kGolden);
    radius_bits[i] = static_cast<uint32_t>(z >> 41);
    angle_bits[i] = static_cast<uint32_t>(z) & 0xffffff;
  }
  for (int64_t i = 0; i < kBlock / 2; ++i) {
    // 23 bits plus half a step are never 0 or 1, and are exact in fp32.
    const float u = (static_cast<float>(static_cast<int32_t>(radius_bits[i])) + 0.5f) * 0x1p-23f;
    const float radius = std::sqrt(-2.0f * logarithm(u)) * deviation;
    // Two bits select a quadrant; the other bits select an angle in [-pi/4, pi/4).
    const uint32_t quarter = angle_bits[i] >> 22;
    const float fraction = static_cast<float>(static_cast<int32_t>(angle_bits[i] & 0x3fffff)) * 0x1p-22f;
    const float a = (fraction - 0.5f) * 1.57079632679490f;
    const float a2 = a * a;
    const float sine = a * (1.0f + a2 * (-1.0f / 6 + a2 * (1.0f / 120 + a2 * (-1.0f / 5040 + a2 * (1.0f / 362880)))));
    const float cosine =
        1.0f + a2 * (-0.5f + a2 * (1.0f / 24 + a2 * (-1.0f / 720 + a2 * (1.0f / 40320 + a2 * (-1.0f / 3628800)))));
    // Odd quadrants swap sine and cosine, and the quadrant determines the signs. Bit operations replace branches so
    // that the compiler can vectorize the loop.
    const uint32_t swap = 0u - (quarter & 1u);
    const uint32_t sine_bits = std::bit_cast<uint32_t>(sine * radius);
    const uint32_t cosine_bits = std::bit_cast<uint32_t>(cosine * radius);
    const uint32_t x_sign = (quarter >> 1) << 31;
    const uint32_t y_sign = ((quarter >> 1) ^ (quarter & 1u)) << 31;
    out[2 * i] = std::bit_cast<float>(((sine_bits & swap) | (cosine_bits & ~swap)) ^ x_sign);
    out[2 * i + 1] = std::bit_cast<float>(((cosine_bits & swap) | (sine_bits & ~swap)) ^ y_sign);
  }
}

void fill_normal(uint64_t key, float deviation, int64_t begin, std::span<float> out) {
  const int64_t end = begin + static_cast<int64_t>(out.size());
  float buffer[kBlock];
  for (int64_t block = begin / kBlock; block * kBlock < end; ++block) {
    const int64_t block_begin = block * kBlock;
    const int64_t from = std::max(begin, block_begin), to = std::min(end, block_begin + kBlock);
    normal_block(key, static_cast<uint64_t>(block_begin / 2), deviation, buffer);
    std::copy(buffer + (from - block_begin), buffer + (to - block_begin), out.data() + (from - begin));
  }
}

}  // namespace

RandomInitializer::RandomInitializer(uint64_t seed, double initializer_range, int threads)
    : seed_(seed),
      deviation_([initializer_range](std::string_view) { return initializer_range; }),
      threads_(threads > 0 ? threads : std::max(1, at::get_num_threads())) {}

RandomInitializer::RandomInitializer(uint64_t seed, const ModelConfig& config, int threads)
    : RandomInitializer(seed, config.initializer_range, threads) {
  const Architecture& architecture = find_architecture(config.model_type, "model configuration");
  if (architecture.deviation == nullptr) return;
  deviation_ = [&architecture, config](std::string_view name) { return architecture.deviation(config, name); };
}

void RandomInitializer::read(const ParameterSpec& parameter, int64_t begin, std::span<float> out) const {
  if (parameter.shape.size() == 1) {
    std::fill(out.begin(), out.end(), parameter.name.ends_with(".bias") ? 0.0f : 1.0f);
    return;
  }
  if (parameter.name.ends_with(kLoraB)) {
    std::ranges::fill(out, 0.0f);
    return;
  }
  const uint64_t key = parameter_key(seed_, parameter.name);
  if (parameter.name.ends_with(kLoraA)) {
    const float bound = 1.0f / std::sqrt(static_cast<float>(parameter.shape[1]));
    for (size_t i = 0; i < out.size(); ++i) {
      // 24 bits are exact in fp32.
      const auto bits = static_cast<int32_t>(mix(key + (static_cast<uint64_t>(begin) + i + 1) * kGolden) >> 40);
      out[i] = (static_cast<float>(bits) * 0x1p-23f - 1.0f) * bound;
    }
    return;
  }
  const auto deviation = static_cast<float>(deviation_(parameter.name));
  const int64_t count = static_cast<int64_t>(out.size());
  constexpr int64_t kWorthAThread = int64_t{1} << 20;
  const int64_t threads = std::clamp<int64_t>(count / kWorthAThread, 1, threads_);
  const int64_t share = (count + threads - 1) / threads;
  const auto fill = [&](int64_t from, int64_t to) {
    fill_normal(key, deviation, begin + from, out.subspan(static_cast<size_t>(from), static_cast<size_t>(to - from)));
  };
  std::vector<std::jthread> helpers;
  for (int64_t t = 1; t < threads; ++t) {
    helpers.emplace_back(fill, std::min(count, t * share), std::min(count, (t + 1) * share));
  }
  fill(0, std::min(count, share));
}

}  // namespace mpzero::model
