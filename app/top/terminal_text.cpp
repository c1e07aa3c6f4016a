#include "app/top/terminal_text.hpp"

#include <clocale>
#include <cwchar>
#include <functional>
#include <string_view>

namespace mpzero {
namespace {

// Makes UTF-8 the encoding of this thread's multi-byte functions while it exists.
class Utf8 {
 public:
  Utf8() : utf8_(::newlocale(LC_CTYPE_MASK, "C.UTF-8", nullptr)), before_(::uselocale(utf8_)) {}
  ~Utf8() {
    ::uselocale(before_);
    if (utf8_ != nullptr) ::freelocale(utf8_);
  }
  Utf8(const Utf8&) = delete;
  Utf8& operator=(const Utf8&) = delete;

 private:
  locale_t utf8_;  // null where the system has none: then only ASCII is shown
  locale_t before_;
};

bool turns_text(wchar_t c) { return (c >= 0x202A && c <= 0x202E) || (c >= 0x2066 && c <= 0x2069); }

// Calls `use` with each character that is to be shown and its columns, until it returns false.
void each_character(const std::string& text, const std::function<bool(std::string_view, int)>& use) {
  const Utf8 locale;
  size_t bytes = 0;
  for (size_t at = 0; at < text.size(); at += bytes) {
    wchar_t c = 0;
    std::mbstate_t state{};
    bytes = std::mbrtowc(&c, text.data() + at, text.size() - at, &state);
    const bool is_character = bytes != 0 && bytes <= text.size() - at;
    if (!is_character) bytes = 1;
    const int columns = is_character && !turns_text(c) ? ::wcwidth(c) : -1;
    const std::string_view shown = columns < 0 ? "?" : std::string_view(text).substr(at, bytes);
    if (!use(shown, columns < 0 ? 1 : columns)) return;
  }
}

}  // namespace

int columns_of(const std::string& text) {
  int sum = 0;
  each_character(text, [&](std::string_view, int columns) {
    sum += columns;
    return true;
  });
  return sum;
}

std::string cut(const std::string& text, int width) {
  std::string result;
  int sum = 0;
  each_character(text, [&](std::string_view character, int columns) {
    sum += columns;
    if (sum > width) return false;
    result += character;
    return true;
  });
  return result;
}

}  // namespace mpzero
