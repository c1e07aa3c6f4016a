#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace mpzero {

// The tokenizer "bytes" of app/prepare_data.py: the id of a byte is its value.
inline constexpr int64_t kEndOfText = 256;
inline constexpr int64_t kByteIds = 257;  // the bytes and the end of a text

std::vector<int64_t> byte_ids(std::string_view text);

// Makes text for a terminal of bytes that come one by one: a character is returned once it is complete. What is no
// UTF-8 becomes U+FFFD, one for each longest beginning of a character that does not go on (Unicode 16, 3.9), and so do
// characters that control a terminal or turn the text around, other than tabs and ends of lines (LF, CR LF).
class Utf8Stream {
 public:
  // What the byte completes; empty: nothing yet.
  std::string add(uint8_t byte);
  // The rest, at the end.
  std::string finish();

 private:
  std::string begun_;     // of a character
  size_t wanted_ = 0;     // bytes of it
  uint8_t least_ = 0x80;  // its next byte
  uint8_t most_ = 0xBF;
};

}  // namespace mpzero
