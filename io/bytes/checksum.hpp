#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
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

// CRC-32 as used in ZIP archives.
uint32_t crc32_of(std::span<const std::byte> bytes);

// Computes the CRC-32 of a long byte sequence from the CRC-32s of its ranges, which may arrive in any order and from
// several processes. Each reader or writer of a range touches its bytes only once.
class RangeChecksums {
 public:
  void add(int64_t begin, std::span<const std::byte> bytes);
  void add(int64_t begin, int64_t end, uint32_t crc);
  void add(const RangeChecksums& others);
  bool empty() const { return ranges_.empty(); }

  // The checksum of bytes [0, size). `read(begin, end)` returns the checksum of bytes that no range covers, or that
  // only ranges cover that begin before bytes already accounted for.
  uint32_t combined(int64_t size, const std::function<uint32_t(int64_t begin, int64_t end)>& read) const;

  // To "begin end crc begin end crc ..." and back. add_text throws std::invalid_argument for anything else.
  std::string to_text() const;
  void add_text(std::string_view text);

 private:
  struct Range {
    int64_t end;
    uint32_t crc;
  };
  std::map<int64_t, Range> ranges_;  // by begin; of several ranges with the same begin, the longest
};

}  // namespace mpzero::io
