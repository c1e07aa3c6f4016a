#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace mpzero {

// Number of ids of a tokenizer.
struct TokenizerSize {
  int64_t regular = 0;  // regular tokens, which occur in text
  int64_t all = 0;      // including added tokens
};

// `tokenizer`: a value of --tokenizer. std::nullopt for a name on the Hugging Face Hub. Throws UserError naming the
// file or folder if it does not exist or is not a tokenizer.
std::optional<TokenizerSize> read_tokenizer_size(const std::string& tokenizer);

}  // namespace mpzero
