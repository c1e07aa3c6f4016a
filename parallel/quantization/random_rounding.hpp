#pragma once

#include <cstdint>
#include <initializer_list>

namespace mpzero::parallel {

// Seed for the stochastic rounding of one message. The random number of an element depends only on the seed and the
// element's position, so a repeated run rounds identically.
struct RoundingKey {
  uint32_t first = 0;
  uint32_t second = 0;
};

// Returns a key for the four arguments, mixed as in SplitMix64 (Steele, Lea, Flood 2014).
inline RoundingKey rounding_key(uint64_t seed, uint64_t step, uint64_t unit, uint64_t sender) {
  uint64_t mixed = 0;
  for (const uint64_t part : {seed, step, unit, sender}) {
    mixed += part + 0x9e3779b97f4a7c15ULL;
    mixed = (mixed ^ (mixed >> 30U)) * 0xbf58476d1ce4e5b9ULL;
    mixed = (mixed ^ (mixed >> 27U)) * 0x94d049bb133111ebULL;
    mixed ^= mixed >> 31U;
  }
  return {.first = static_cast<uint32_t>(mixed), .second = static_cast<uint32_t>(mixed >> 32U)};
}

// Returns a number in [0, 1) with 24 random bits, mixed by MurmurHash3's finalizer (Appleby). The function is constexpr
// so that GPU kernels can call it.
constexpr float random_fraction(uint32_t element, RoundingKey key) {
  uint32_t h = element ^ key.first;
  h = (h ^ (h >> 16U)) * 0x85ebca6bU;
  h ^= key.second;
  h = (h ^ (h >> 13U)) * 0xc2b2ae35U;
  h ^= h >> 16U;
  return static_cast<float>(static_cast<int32_t>(h >> 8U)) * 0x1p-24F;
}

}  // namespace mpzero::parallel
