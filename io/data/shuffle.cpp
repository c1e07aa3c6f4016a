#include "io/data/shuffle.hpp"

#include <algorithm>
#include <bit>

#include "base/error.hpp"

namespace mpzero::io {
namespace {

constexpr uint64_t kGoldenGamma = 0x9e3779b97f4a7c15;

// The output function of SplitMix64 (Steele, Lea and Flood, OOPSLA 2014).
uint64_t mix(uint64_t value) {
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9;
  value = (value ^ (value >> 27)) * 0x94d049bb133111eb;
  return value ^ (value >> 31);
}

}  // namespace

Permutation::Permutation(uint64_t size, uint64_t seed, uint64_t epoch) : size_(size) {
  if (size == 0) throw_failure("a permutation of 0 elements was requested");
  half_bits_ = std::max<int>(1, (static_cast<int>(std::bit_width(size - 1)) + 1) / 2);
  uint64_t state = mix(mix(seed + kGoldenGamma) ^ (epoch + kGoldenGamma));
  for (uint64_t& key : keys_) key = mix(state += kGoldenGamma);
}

uint64_t Permutation::operator()(uint64_t position) const {
  if (position >= size_) throw_failure("position {} is outside a permutation of {} elements", position, size_);
  do {
    position = encrypt(position);
  } while (position >= size_);
  return position;
}

uint64_t Permutation::encrypt(uint64_t value) const {
  const uint64_t mask = (uint64_t{1} << half_bits_) - 1;
  uint64_t left = value >> half_bits_;
  uint64_t right = value & mask;
  for (const uint64_t key : keys_) {
    // The high bits of the product are the well-mixed ones.
    const uint64_t next = left ^ (mix(right + key) >> (64 - half_bits_));
    left = right;
    right = next;
  }
  return left << half_bits_ | right;
}

}  // namespace mpzero::io
