#pragma once

#include <array>
#include <cstdint>

namespace mpzero::io {

// A pseudo-random order of 0 .. size - 1 that needs no table: a balanced Feistel network over the smallest even number
// of bits that holds `size`, walked along its cycle until the value is below `size` (Black and Rogaway, "Ciphers with
// Arbitrary Finite Domains", CT-RSA 2002). Each (seed, epoch) gives another order. The same pair gives the same order
// on every machine.
class Permutation {
 public:
  Permutation(uint64_t size, uint64_t seed, uint64_t epoch);

  // The index at `position` of the order. Both are in [0, size). Takes fewer than four walks on average.
  uint64_t operator()(uint64_t position) const;

 private:
  static constexpr int kRounds = 8;

  uint64_t encrypt(uint64_t value) const;

  uint64_t size_;
  int half_bits_;
  std::array<uint64_t, kRounds> keys_;
};

}  // namespace mpzero::io
