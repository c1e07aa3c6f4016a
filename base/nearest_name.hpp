#pragma once

#include <optional>
#include <string>
#include <vector>

namespace mpzero {

// Of `known`, the word that `word` was probably meant to be: one or two edits away (insert, delete, replace, swap of
// neighbours), else one that contains it (micro_batch_size in train_micro_batch_size_per_gpu), else one that a third of
// its letters as edits turns it into; none if nothing is as near as that.
std::optional<std::string> nearest_name(const std::string& word, const std::vector<std::string>& known);

}  // namespace mpzero
