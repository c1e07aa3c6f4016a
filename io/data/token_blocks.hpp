#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <variant>
#include <vector>

#include "io/hdf5/file.hpp"

namespace mpzero::io {

// The tokens of a file with a checksum for each block of tokens: `/tokens_xxh3` (uint64). Its element i is the XXH3 (64
// bits) of the little-endian bytes of tokens [i * block_size, (i + 1) * block_size); the last block may be shorter. Its
// attribute block_size is the number of tokens per block. Unlike fletcher32 within a chunk, it detects a block of zeros
// and a misplaced block.
class TokenBlocks {
 public:
  static constexpr const char* kName = "tokens_xxh3";

  // `tokens`: one-dimensional uint16 or uint32, must outlive this object. Throws UserError if dtype, shape, block size
  // or number of the checksums is wrong.
  TokenBlocks(const hdf5::Dataset& tokens, hdf5::Dataset checksums);

  // Reads tokens [begin, begin + out.size()). Every block that they touch is read and verified in full. The last block
  // is cached. Throws UserError naming the tokens of a damaged block.
  void read(uint64_t begin, std::span<int64_t> out);

 private:
  static constexpr uint64_t kNone = std::numeric_limits<uint64_t>::max();

  void load(uint64_t block);

  const hdf5::Dataset* tokens_;
  hdf5::Dataset checksums_;
  uint64_t block_size_ = 0;  // tokens
  uint64_t loaded_ = kNone;
  std::variant<std::vector<uint16_t>, std::vector<uint32_t>> block_;  // the tokens of `loaded_`, as stored
};

}  // namespace mpzero::io
