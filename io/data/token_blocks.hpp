#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <variant>
#include <vector>

#include "io/hdf5/file.hpp"

namespace mpzero::io {

// Reads tokens and verifies them against the checksums in the dataset `/tokens_xxh3` (uint64). Element i is the 64-bit
// XXH3 of the little-endian bytes of tokens [i * block_size, (i + 1) * block_size). The last block may be shorter. The
// attribute block_size is the number of tokens per block. Unlike the fletcher32 filter of HDF5, these checksums detect
// zeroed and misplaced blocks.
class TokenBlocks {
 public:
  static constexpr const char* kName = "tokens_xxh3";

  // `tokens` must be one-dimensional uint16 or uint32 and must outlive this object. Throws UserError if the dtype,
  // shape, block size or number of checksums is invalid.
  TokenBlocks(const hdf5::Dataset& tokens, hdf5::Dataset checksums);

  // Reads tokens [begin, begin + out.size()). Reads and verifies complete blocks and caches the last block. Throws
  // UserError, with the token range, if a block is damaged.
  void read(uint64_t begin, std::span<int64_t> out);

 private:
  static constexpr uint64_t kNone = std::numeric_limits<uint64_t>::max();

  void load(uint64_t block);

  const hdf5::Dataset* tokens_;
  hdf5::Dataset checksums_;
  uint64_t block_size_ = 0;  // tokens
  uint64_t loaded_ = kNone;
  std::variant<std::vector<uint16_t>, std::vector<uint32_t>> block_;  // tokens of the block `loaded_`, as stored
};

}  // namespace mpzero::io
