#include "app/generate/byte_text.hpp"

#include <utility>

namespace mpzero {
namespace {

constexpr const char* kReplacement = "\xEF\xBF\xBD";  // U+FFFD

bool is_plain(uint8_t byte) { return (byte >= 0x20 && byte != 0x7F) || byte == '\t' || byte == '\n'; }

// Returns true if a complete multibyte character is safe to print.
bool is_shown(const std::string& character) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(character[i]); };
  // U+0080 to U+009F: control characters.
  if (byte(0) == 0xC2) return byte(1) >= 0xA0;
  if (byte(0) != 0xE2) return true;
  // U+202A to U+202E and U+2066 to U+2069: bidirectional formatting.
  const bool turns = (byte(1) == 0x80 && byte(2) >= 0xAA && byte(2) <= 0xAE) ||
                     (byte(1) == 0x81 && byte(2) >= 0xA6 && byte(2) <= 0xA9);
  return !turns;
}

}  // namespace

std::vector<int64_t> byte_ids(std::string_view text) {
  std::vector<int64_t> ids;
  ids.reserve(text.size());
  for (const char c : text) ids.push_back(static_cast<uint8_t>(c));
  return ids;
}

std::string Utf8Stream::add(uint8_t byte) {
  std::string shown;
  if (!begun_.empty()) {
    if (byte >= least_ && byte <= most_) {
      begun_ += static_cast<char>(byte);
      least_ = 0x80;
      most_ = 0xBF;
      if (begun_.size() < wanted_) return shown;
      const std::string character = std::exchange(begun_, {});
      return is_shown(character) ? character : kReplacement;
    }
    shown = finish();
  }
  if (byte == '\r') {
    // A CR without LF would overwrite the line.
    begun_ = '\r';
    wanted_ = 2;
    least_ = most_ = '\n';
    return shown;
  }
  if (byte < 0x80) return shown + (is_plain(byte) ? std::string(1, static_cast<char>(byte)) : kReplacement);
  // Valid first bytes and ranges of the second byte: table 3-7 of the Unicode standard.
  least_ = 0x80;
  most_ = 0xBF;
  if (byte >= 0xC2 && byte <= 0xDF) {
    wanted_ = 2;
  } else if (byte >= 0xE0 && byte <= 0xEF) {
    wanted_ = 3;
    if (byte == 0xE0) least_ = 0xA0;
    if (byte == 0xED) most_ = 0x9F;
  } else if (byte >= 0xF0 && byte <= 0xF4) {
    wanted_ = 4;
    if (byte == 0xF0) least_ = 0x90;
    if (byte == 0xF4) most_ = 0x8F;
  } else {
    return shown + kReplacement;
  }
  begun_ = static_cast<char>(byte);
  return shown;
}

std::string Utf8Stream::finish() { return std::exchange(begun_, {}).empty() ? "" : kReplacement; }

}  // namespace mpzero
