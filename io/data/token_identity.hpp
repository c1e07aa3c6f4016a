#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>

#include "io/data/tokenization.hpp"

namespace mpzero::io {

// Identifies the tokens of a token file, regardless of the file's location and name.
struct TokenIdentity {
  int64_t num_tokens = 0;
  // XXH3 (64 bits, 16 hexadecimal digits) of the bytes of /tokens; with a loss mask, of that hash and those of
  // /loss_mask and /document_offsets, one per line. Empty: the file lacks the hash and is too large to compute it.
  std::string tokens_xxh3;
  // The same for /document_offsets, or its beginning, if tokens_xxh3 is empty.
  std::string documents_xxh3;
  // How the tokens were made; does not identify them.
  Tokenization tokenization{};

  bool operator==(const TokenIdentity&) const = default;
};

// The attribute of /tokens and /loss_mask with the hash of their bytes, if the program that wrote the file added one.
inline constexpr const char* kTokensHashName = "xxh3_64";

// Maximum number of bytes read for the identity at the start of a run: 10 s at 100 MB/s.
inline constexpr int64_t kMaxIdentityBytes = int64_t{1} << 30;

// For a file that TokenDataset has checked. Uses the attribute if the file has it; otherwise reads at most `max_bytes`.
// Throws UserError, naming the file, if it cannot be read or the attribute is not such a hash.
TokenIdentity read_token_identity(const std::filesystem::path& path, int64_t max_bytes = kMaxIdentityBytes);

// The identity of a mixture: of all its tokens, regardless of the order of its sources. `sources` must not be empty and
// must share a tokenizer; the end of turn and the chat template are those of the first source with chat data.
TokenIdentity identity_of(std::span<const TokenIdentity> sources);

// The seed of a source's shuffled order in a mixture. It does not depend on the other sources.
uint64_t order_seed(uint64_t seed, const TokenIdentity& source);

// Whether the two hold the same tokens in the same order. std::nullopt if they have the same number of tokens and no
// hash in common.
std::optional<bool> same_tokens(const TokenIdentity& a, const TokenIdentity& b);

// "3001 tokens (1a2b3c4d)".
std::string show(const TokenIdentity& identity);

}  // namespace mpzero::io
