#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace mpzero::io {

// Large data is checksummed in blocks of this size: a multiple of the transfer size of file systems, yet small compared
// to a shard, since a read may verify one extra block at each end.
inline constexpr int64_t kChecksumBlockBytes = 4 << 20;

// 64-bit XXH3: detects damage, does not resist forgery. Faster than memory bandwidth.
uint64_t checksum(std::span<const std::byte> bytes);

// The checksum of bytes that arrive piece by piece.
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

// To 16 hexadecimal digits and back. from_hex throws std::invalid_argument for anything else.
std::string to_hex(uint64_t checksum);
uint64_t from_hex(std::string_view digits);

}  // namespace mpzero::io
