#include "base/text/printable.hpp"

#include <fmt/format.h>

#include <cstddef>
#include <cstdint>

namespace mpzero {
namespace {

struct Character {
  uint32_t code = 0;
  size_t bytes = 0;  // 0 if the text does not begin with a UTF-8 character
};

// Accepts only the shortest encoding of a code point (RFC 3629).
Character first_character(std::string_view text) {
  const auto lead = static_cast<unsigned char>(text.front());
  if (lead < 0x80) return {lead, 1};
  const size_t bytes = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
  if (lead < 0xC2 || lead > 0xF4 || text.size() < bytes) return {};
  uint32_t code = lead & (0xFFU >> (bytes + 1));
  for (size_t i = 1; i < bytes; ++i) {
    const auto next = static_cast<unsigned char>(text[i]);
    if ((next & 0xC0U) != 0x80U) return {};
    code = code << 6 | (next & 0x3FU);
  }
  const bool surrogate = code >= 0xD800 && code <= 0xDFFF;
  const bool longer_than_needed = (bytes == 3 && code < 0x800) || (bytes == 4 && code < 0x10000);
  if (surrogate || longer_than_needed || code > 0x10FFFF) return {};
  return {code, bytes};
}

bool is_control(uint32_t code) {
  const bool c0_or_c1 = code < 0x20 || (code >= 0x7F && code <= 0x9F);
  const bool turns_text = code == 0x061C || code == 0x200E || code == 0x200F || (code >= 0x202A && code <= 0x202E) ||
                          (code >= 0x2066 && code <= 0x2069);
  const bool separates_lines = code == 0x2028 || code == 0x2029;
  return c0_or_c1 || turns_text || separates_lines;
}

}  // namespace

std::string printable(std::string_view text) {
  std::string shown;
  shown.reserve(text.size());
  while (!text.empty()) {
    const auto [code, bytes] = first_character(text);
    if (bytes == 0) {
      shown += fmt::format("\\x{:02x}", static_cast<unsigned char>(text.front()));
    } else if (!is_control(code)) {
      shown += text.substr(0, bytes);
    } else if (code == '\n') {
      shown += "\\n";
    } else {
      shown += code < 0x100 ? fmt::format("\\x{:02x}", code) : fmt::format("\\u{:04x}", code);
    }
    text.remove_prefix(bytes == 0 ? 1 : bytes);
  }
  return shown;
}

}  // namespace mpzero
