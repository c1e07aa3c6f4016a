#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>

namespace mpzero::io {

// CRC-32 as ZIP archives have it.
uint32_t crc32_of(std::span<const std::byte> bytes);

// The CRC-32 of a long row of bytes from those of its parts, which may come in any order and from several processes.
// So whoever reads or writes a part touches each byte once.
class RangeChecksums {
 public:
  void add(int64_t begin, std::span<const std::byte> bytes);
  void add(int64_t begin, int64_t end, uint32_t crc);
  void add(const RangeChecksums& others);
  bool empty() const { return ranges_.empty(); }

  // The checksum of bytes [0, size). `read(begin, end)` yields that of a part that is in no range, or only in ranges
  // that begin before it and are taken already.
  uint32_t combined(int64_t size, const std::function<uint32_t(int64_t begin, int64_t end)>& read) const;

  // "begin end crc begin end crc ...", and back; add_text throws std::invalid_argument for anything else.
  std::string to_text() const;
  void add_text(std::string_view text);

 private:
  struct Range {
    int64_t end;
    uint32_t crc;
  };
  std::map<int64_t, Range> ranges_;  // by begin; of several with one begin, the longest
};

}  // namespace mpzero::io
