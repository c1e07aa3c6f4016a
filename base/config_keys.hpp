#pragma once

namespace mpzero {

// Key in an exported config.json that names a tokenizer without files: "bytes".
inline constexpr const char* kExportedTokenizer = "mpzero_tokenizer";

}  // namespace mpzero
