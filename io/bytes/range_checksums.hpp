#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>

namespace mpzero::io {

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
