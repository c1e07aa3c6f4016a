#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

// Words of sentences for users.
namespace mpzero {

// "1 host", "3 hosts": the noun takes an s where there is not one of it.
std::string counted(int64_t count, std::string_view noun);

// The word of `known` that `word` was probably meant to be: one at a distance of one or two edits (insert, delete,
// replace, swap of neighbours), else one that contains `word` (micro_batch_size in train_micro_batch_size_per_gpu),
// else one whose distance in edits is at most a third of its length. std::nullopt if none is that near.
std::optional<std::string> nearest_name(const std::string& word, const std::vector<std::string>& known);

}  // namespace mpzero
