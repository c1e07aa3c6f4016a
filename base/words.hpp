#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

// Helpers for messages to users.
namespace mpzero {

// "1 host", "3 hosts": adds an s unless count is 1.
std::string counted(int64_t count, std::string_view noun);

// The most likely intended word in `known`: one within two edits (insert, delete, replace, swap of neighbours), else
// one that contains `word` (micro_batch_size in train_micro_batch_size_per_gpu), else one within a third of the length
// of `word` in edits. std::nullopt if there is none.
std::optional<std::string> nearest_name(const std::string& word, const std::vector<std::string>& known);

}  // namespace mpzero
