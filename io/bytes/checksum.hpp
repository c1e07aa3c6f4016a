#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace mpzero::io {

// Large data are checksummed in blocks of this size: a multiple of what file systems move at once, yet small beside a
// shard, since a read may verify one block too many at each end.
inline constexpr int64_t kChecksumBlockBytes = 4 << 20;

// XXH3 with 64 bits: finds damage, does not resist forgery. Hashes faster than memory delivers.
uint64_t checksum(std::span<const std::byte> bytes);

// The checksum of bytes that come piece by piece.
class StreamingChecksum {
 public:
  StreamingChecksum();
  ~StreamingChecksum();
  void add(std::span<const std::byte> bytes);
  uint64_t value() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// 16 hexadecimal digits, and back. from_hex throws std::invalid_argument for anything else.
std::string to_hex(uint64_t checksum);
uint64_t from_hex(std::string_view digits);

}  // namespace mpzero::io
