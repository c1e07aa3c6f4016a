#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

// Helpers for messages to users.
namespace mpzero {

// Returns `count` and `noun`, with an s appended to `noun` unless `count` is 1: "1 host", "3 hosts".
std::string counted(int64_t count, std::string_view noun);

// Returns the most likely intended word in `known`: a word within two edits (insertion, deletion, replacement, or swap
// of neighbors), else a word that contains `word` (micro_batch_size in train_micro_batch_size_per_gpu), else a word at
// an edit distance of at most a third of the length of `word`. Returns std::nullopt if there is no match.
std::optional<std::string> nearest_name(const std::string& word, const std::vector<std::string>& known);

}  // namespace mpzero
