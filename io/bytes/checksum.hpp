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

// Block size for checksums of large data, in bytes: a multiple of the transfer size of file systems. Blocks are small
// compared to a shard because a read may verify one extra block at each end.
inline constexpr int64_t kChecksumBlockBytes = 4 << 20;

// Returns the 64-bit XXH3 hash, which is not cryptographic.
uint64_t checksum(std::span<const std::byte> bytes);

// Computes the checksum of a byte sequence incrementally.
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

// Convert a checksum to and from 16 hexadecimal digits. from_hex() throws std::invalid_argument for invalid input.
std::string to_hex(uint64_t checksum);
uint64_t from_hex(std::string_view digits);

// Returns the CRC-32 checksum used in ZIP archives.
uint32_t crc32_of(std::span<const std::byte> bytes);

// Computes the CRC-32 of a long byte sequence from the CRC-32s of its ranges. The ranges may arrive in any order and
// from several processes, so each reader or writer hashes only its own ranges.
class RangeChecksums {
 public:
  void add(int64_t begin, std::span<const std::byte> bytes);
  void add(int64_t begin, int64_t end, uint32_t crc);
  void add(const RangeChecksums& others);
  bool empty() const { return ranges_.empty(); }

  // Returns the checksum of bytes [0, size). Calls `read(begin, end)` for the checksum of gaps and of partially
  // overlapping ranges.
  uint32_t combined(int64_t size, const std::function<uint32_t(int64_t begin, int64_t end)>& read) const;

  // Convert the ranges to and from text: "begin end crc begin end crc ...". add_text() throws std::invalid_argument for
  // invalid input.
  std::string to_text() const;
  void add_text(std::string_view text);

 private:
  struct Range {
    int64_t end;
    uint32_t crc;
  };
  std::map<int64_t, Range> ranges_;  // key: begin; keeps the longest range per begin
};

}  // namespace mpzero::io
