#include <string>

#include "base/text/printable.hpp"
#include "tests/catch.hpp"

namespace mpzero {

TEST_CASE("characters that move the cursor, begin a line or reorder text are escaped") {
  const auto [text, shown] = GENERATE(table<std::string, std::string>({
      {"", ""},
      {"model-5steps", "model-5steps"},
      {"\xED\x95\x9C\xEA\xB8\x80 \xC3\xA9 \xF0\x9F\x98\x80", "\xED\x95\x9C\xEA\xB8\x80 \xC3\xA9 \xF0\x9F\x98\x80"},
      {"C:\\n", "C:\\n"},
      {"\x1b[2J", "\\x1b[2J"},
      {"a\nb\tc\rd", "a\\nb\\x09c\\x0dd"},
      {std::string("\0\x7F", 2), "\\x00\\x7f"},
      {"\xC2\x9B", "\\x9b"},  // C1: CSI in one character
      {"\xE2\x80\xAE\xE2\x81\xA6\xE2\x80\xA8", "\\u202e\\u2066\\u2028"},
      {"\xFF\x80", "\\xff\\x80"},
      {"\xC0\x9B \xE0\x80\x9B", "\\xc0\\x9b \\xe0\\x80\\x9b"},  // longer than needed
      {"\xED\xA0\x80", "\\xed\\xa0\\x80"},                      // a surrogate
      {"\xF4\x90\x80\x80", "\\xf4\\x90\\x80\\x80"},             // beyond Unicode
      {"\xE2\x82", "\\xe2\\x82"},                               // cut
  }));
  CHECK(printable(text) == shown);
  CHECK(printable(shown) == shown);
}

}  // namespace mpzero
