#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

namespace mpzero::io {

// What tells the tokens of one token file from those of another, wherever it lies and whatever it is called.
struct TokenIdentity {
  int64_t num_tokens = 0;
  // XXH3 (64 bits, 16 hexadecimal digits) of the bytes of /tokens; empty: the file does not say, and is too large to be
  // read for it.
  std::string tokens_xxh3;
  // The same of /document_offsets, or its beginning, where tokens_xxh3 is empty.
  std::string documents_xxh3;

  bool operator==(const TokenIdentity&) const = default;
};

// The attribute of /tokens with TokenIdentity::tokens_xxh3, where the program that wrote the file added one.
inline constexpr const char* kTokensHashName = "xxh3_64";

// As much of a file is read for its identity at the start of a run: 10 s at 100 MB/s.
inline constexpr int64_t kMaxIdentityBytes = int64_t{1} << 30;

// Of a file that TokenDataset has found in order. Takes the attribute where the file has it; otherwise reads at most
// `max_bytes`. Throws UserError, naming the file, where it cannot be read or the attribute is no such hash.
TokenIdentity read_token_identity(const std::filesystem::path& path, int64_t max_bytes = kMaxIdentityBytes);

// Whether the two hold the same tokens in the same order; nothing where they have as many, and no hash in common.
std::optional<bool> same_tokens(const TokenIdentity& a, const TokenIdentity& b);

// "3001 tokens (1a2b3c4d)".
std::string show(const TokenIdentity& identity);

}  // namespace mpzero::io
