#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace mpzero {

// The "bytes" tokenizer of app/prepare_data.py, whose token ids are byte values.
inline constexpr int64_t kEndOfText = 256;
inline constexpr int64_t kByteIds = 257;  // 256 bytes and end of text

std::vector<int64_t> byte_ids(std::string_view text);

// Incremental UTF-8 decoder for terminal output. Replaces invalid UTF-8 with U+FFFD, one per maximal subpart (Unicode
// 16, section 3.9). Also replaces bidirectional formatting and control characters except tab, LF and CR LF.
class Utf8Stream {
 public:
  // Returns the text that `byte` completes; empty if the character is incomplete.
  std::string add(uint8_t byte);
  // Returns the remaining text at the end of input.
  std::string finish();

 private:
  std::string begun_;     // incomplete character
  size_t wanted_ = 0;     // expected length of this character in bytes
  uint8_t least_ = 0x80;  // minimum of the next byte
  uint8_t most_ = 0xBF;   // maximum of the next byte
};

}  // namespace mpzero
