#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <variant>
#include <vector>

#include "io/hdf5/file.hpp"

namespace mpzero::io {

// The tokens of a file that holds a checksum for each block of them: `/tokens_xxh3` (uint64), whose element i is the
// XXH3 (64 bits) of the little-endian bytes of tokens [i * block_size, (i + 1) * block_size), the last block being
// shorter, and whose attribute block_size says how many tokens a block has. Unlike fletcher32 within a chunk, it tells
// a block of zeros, or one that belongs elsewhere, from the block that was written.
class TokenBlocks {
 public:
  static constexpr const char* kName = "tokens_xxh3";

  // `tokens`: one-dimensional uint16 or uint32; outlives this object. Throws UserError where the checksums do not fit
  // the tokens.
  TokenBlocks(const hdf5::Dataset& tokens, hdf5::Dataset checksums);

  // Tokens [begin, begin + out.size()). Every block that they touch is read and verified whole; the last one is kept.
  // Throws UserError that names the tokens of a damaged block.
  void read(uint64_t begin, std::span<int64_t> out);

 private:
  static constexpr uint64_t kNone = std::numeric_limits<uint64_t>::max();

  void load(uint64_t block);

  const hdf5::Dataset* tokens_;
  hdf5::Dataset checksums_;
  uint64_t block_size_ = 0;  // tokens
  uint64_t loaded_ = kNone;
  std::variant<std::vector<uint16_t>, std::vector<uint32_t>> block_;  // the tokens of `loaded_`, as they are stored
};

}  // namespace mpzero::io
