#pragma once

#include <c10/macros/Macros.h>

#include <cstdint>

namespace mpzero::parallel {

// 32 random bits for one element in one update, equal on the host and on the GPU: MurmurHash3's finalizer (Appleby)
// over position and seed. The salt contains the upper half of the position, so that vectorized code computes the salt
// only once.
C10_HOST_DEVICE inline uint32_t random_salt(int64_t element, uint32_t seed) {
  return (static_cast<uint32_t>(element >> 32) * 0x9e3779b1U) ^ seed;
}
C10_HOST_DEVICE inline uint32_t random_bits(uint32_t lower_half, uint32_t salt) {
  uint32_t h = lower_half ^ salt;
  h = (h ^ (h >> 16)) * 0x85ebca6bU;
  h = (h ^ (h >> 13)) * 0xc2b2ae35U;
  return h ^ (h >> 16);
}

}  // namespace mpzero::parallel
