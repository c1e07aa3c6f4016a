#include "base/words.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace mpzero {
namespace {

// Returns the optimal string alignment distance (Damerau-Levenshtein without overlapping swaps).
size_t edit_distance(const std::string& a, const std::string& b) {
  std::vector<std::vector<size_t>> distance(a.size() + 1, std::vector<size_t>(b.size() + 1));
  for (size_t i = 0; i <= a.size(); ++i) distance[i][0] = i;
  for (size_t j = 0; j <= b.size(); ++j) distance[0][j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t replaced = distance[i - 1][j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      distance[i][j] = std::min({distance[i - 1][j] + 1, distance[i][j - 1] + 1, replaced});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        distance[i][j] = std::min(distance[i][j], distance[i - 2][j - 2] + 1);
      }
    }
  }
  return distance[a.size()][b.size()];
}

}  // namespace

std::string counted(int64_t count, std::string_view noun) {
  return fmt::format("{} {}{}", count, noun, count == 1 ? "" : "s");
}

std::optional<std::string> nearest_name(const std::string& word, const std::vector<std::string>& known) {
  constexpr size_t kShortestPart = 5, kShortestBeginning = 3;  // letters
  const size_t typo = word.size() < 4 ? 1 : 2;                 // edits
  std::optional<std::string> nearest;
  size_t smallest = std::max(typo, word.size() / 3) + 1;
  for (const std::string& name : known) {
    const size_t distance = edit_distance(word, name);
    if (distance < smallest) {
      smallest = distance;
      nearest = name;
    }
  }
  if (nearest && smallest <= typo) return nearest;
  for (const std::string& name : known) {
    const size_t at = name.find(word);
    if (word.size() >= (at == 0 ? kShortestBeginning : kShortestPart) && at != std::string::npos) return name;
  }
  return nearest;
}

}  // namespace mpzero
