#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace mpzero::io {

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
