#include "parallel/host/part_sum.hpp"

#include <algorithm>
#include <array>
#include <bit>

#include "base/error.hpp"

namespace mpzero::parallel {
namespace {

// Elements that are added at a time, so that they stay in the L1 cache.
constexpr int64_t kBlock = 2048;

// bf16 bits as integers, which lets the compiler vectorize the conversions.
using Bf16 = uint16_t;

float widen(float value) { return value; }
double widen(double value) { return value; }
float widen(Bf16 bits) { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }

void round_to(float value, float& to) { to = value; }
void round_to(double value, double& to) { to = value; }
// Rounds to nearest, ties to even. A NaN stays NaN, because rounding its bits could carry over to infinity.
void round_to(float value, Bf16& to) {
  const auto bits = std::bit_cast<uint32_t>(value);
  const uint32_t rounded = (bits + 0x7FFFU + ((bits >> 16) & 1U)) >> 16;
  to = static_cast<Bf16>((bits & 0x7FFFFFFFU) > 0x7F800000U ? 0x7FC0U : rounded);
}

template <typename Part, typename Sum>
void sum_block(std::span<const void* const> parts, int64_t begin, int64_t n, bool add, Sum* sum) {
  using Wide = decltype(widen(Part{}));
  std::array<Wide, kBlock> total;
  for (size_t p = 0; p < parts.size(); ++p) {
    const Part* const part = static_cast<const Part*>(parts[p]) + begin;
    if (p == 0) {
      for (int64_t i = 0; i < n; ++i) total[static_cast<size_t>(i)] = widen(part[i]);
    } else {
      for (int64_t i = 0; i < n; ++i) total[static_cast<size_t>(i)] += widen(part[i]);
    }
  }
  if (add) {
    for (int64_t i = 0; i < n; ++i) total[static_cast<size_t>(i)] += widen(sum[i]);
  }
  for (int64_t i = 0; i < n; ++i) round_to(total[static_cast<size_t>(i)], sum[i]);
}

template <typename Part, typename Sum>
void sum_all(std::span<const void* const> parts, int64_t n, bool add, void* sum) {
  for (int64_t begin = 0; begin < n; begin += kBlock) {
    sum_block<Part>(parts, begin, std::min(kBlock, n - begin), add, static_cast<Sum*>(sum) + begin);
  }
}

}  // namespace

void sum_parts(std::span<const void* const> parts, c10::ScalarType part_type, int64_t n, bool add, void* sum,
               c10::ScalarType sum_type) {
  using c10::ScalarType;
  if (part_type == ScalarType::BFloat16 && sum_type == ScalarType::BFloat16) {
    sum_all<Bf16, Bf16>(parts, n, add, sum);
  } else if (part_type == ScalarType::BFloat16 && sum_type == ScalarType::Float) {
    sum_all<Bf16, float>(parts, n, add, sum);
  } else if (part_type == ScalarType::Float && sum_type == ScalarType::BFloat16) {
    sum_all<float, Bf16>(parts, n, add, sum);
  } else if (part_type == ScalarType::Float && sum_type == ScalarType::Float) {
    sum_all<float, float>(parts, n, add, sum);
  } else if (part_type == ScalarType::Double && sum_type == ScalarType::Double) {
    sum_all<double, double>(parts, n, add, sum);
  } else {
    throw_failure("sums of {} into {} are not supported", c10::toString(part_type), c10::toString(sum_type));
  }
}

}  // namespace mpzero::parallel
