#pragma once

namespace mpzero {

// Key of an exported config.json: the tokenizer of the model if it has no files ("bytes").
inline constexpr const char* kExportedTokenizer = "mpzero_tokenizer";

}  // namespace mpzero
