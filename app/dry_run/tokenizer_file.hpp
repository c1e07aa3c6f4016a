#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace mpzero {

struct TokenizerSize {
  int64_t regular = 0;  // largest id of a regular token, plus 1
  int64_t all = 0;      // largest id of any token, plus 1
};

// Returns the size of the tokenizer `tokenizer`, a value of --tokenizer, or std::nullopt if the value is a Hugging Face
// name. Throws UserError if a file or folder does not exist or is not a tokenizer.
std::optional<TokenizerSize> read_tokenizer_size(const std::string& tokenizer);

}  // namespace mpzero
