#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace mpzero {

// The tokenizer "bytes" of app/prepare_data.py: the id of a byte is its value.
inline constexpr int64_t kEndOfText = 256;
inline constexpr int64_t kByteIds = 257;  // bytes and end of text

std::vector<int64_t> byte_ids(std::string_view text);

// Decodes single bytes to text for a terminal; returns each character once it is complete. Invalid UTF-8 becomes
// U+FFFD, one per maximal subpart of a character (Unicode 16, 3.9). So do control characters and bidirectional
// formatting, other than tabs and line ends (LF, CR LF).
class Utf8Stream {
 public:
  // The text that the byte completes; empty: nothing yet.
  std::string add(uint8_t byte);
  // The remaining text, at the end.
  std::string finish();

 private:
  std::string begun_;     // bytes of an incomplete character
  size_t wanted_ = 0;     // number of bytes of this character
  uint8_t least_ = 0x80;  // its next byte
  uint8_t most_ = 0xBF;
};

}  // namespace mpzero
