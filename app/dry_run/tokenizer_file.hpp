#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace mpzero {

// How many ids a tokenizer has.
struct TokenizerSize {
  int64_t regular = 0;  // of words, which occur in texts
  int64_t all = 0;      // and of added tokens
};

// `tokenizer`: what --tokenizer takes. Nothing for a name on the Hugging Face Hub. Throws UserError where the file or
// folder does not exist or is no tokenizer, naming it.
std::optional<TokenizerSize> read_tokenizer_size(const std::string& tokenizer);

}  // namespace mpzero
