#pragma once

#include <string>
#include <string_view>

namespace mpzero {

// `text` with escapes ("\x1b", "\n", "\u202e") in place of control characters, bidirectional controls, line separators
// and bytes that are not UTF-8, so it cannot move a terminal's cursor, begin a line or reorder text. For names and
// values from files, folders and other programs.
std::string printable(std::string_view text);

}  // namespace mpzero
