#pragma once

#include <string>
#include <string_view>

namespace mpzero {

// Returns `text` with control characters, bidirectional controls, line separators and invalid UTF-8 replaced with
// escapes ("\x1b", "\n", "\u202e"). The result cannot move a terminal's cursor, begin a line or reorder text. Must be
// used for all printed names and values that come from files, folders and other programs.
std::string printable(std::string_view text);

}  // namespace mpzero
