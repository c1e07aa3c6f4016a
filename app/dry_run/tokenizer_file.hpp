#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace mpzero {

struct TokenizerSize {
  int64_t regular = 0;  // largest id of a regular token, plus 1
  int64_t all = 0;      // largest id of any token, plus 1
};

// `tokenizer`: value of --tokenizer. Returns std::nullopt for a Hugging Face name. Throws UserError if a file or folder
// does not exist or is not a tokenizer.
std::optional<TokenizerSize> read_tokenizer_size(const std::string& tokenizer);

}  // namespace mpzero
