#pragma once

#include <string>
#include <string_view>

namespace mpzero {

// `text` with escapes ("\x1b", "\n", "\u202e") in place of what would move a terminal's cursor, begin a line or turn
// the text around: control characters, directions of writing, line separators, and bytes that are not UTF-8. For names
// and values from files, folders and other programs.
std::string printable(std::string_view text);

}  // namespace mpzero
