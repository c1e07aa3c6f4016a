#pragma once

#include <optional>
#include <string>
#include <vector>

namespace mpzero::io {

// Of `known`, the word that needs the fewest edits (insert, delete, replace, swap of neighbours) to become `word`, if
// it is near enough to be what the user meant.
std::optional<std::string> nearest_name(const std::string& word, const std::vector<std::string>& known);

}  // namespace mpzero::io
