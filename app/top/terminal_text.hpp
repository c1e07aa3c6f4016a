#pragma once

#include <string>

namespace mpzero {

// How many columns of a terminal a UTF-8 text takes: a wide character two, a combining one none.
int columns_of(const std::string& text);

// As many characters from the begin of a text as fit into `width` columns. What others may have written to move the
// cursor or to turn the text around becomes "?": control characters (C0, DEL, C1), directions of writing, and bytes
// that are no UTF-8.
std::string cut(const std::string& text, int width);

}  // namespace mpzero
