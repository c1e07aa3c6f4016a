#pragma once

namespace mpzero {

// Key in an exported config.json for a tokenizer without files ("bytes").
inline constexpr const char* kExportedTokenizer = "mpzero_tokenizer";

}  // namespace mpzero
