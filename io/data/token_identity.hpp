#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>

#include "io/data/tokenization.hpp"

namespace mpzero::io {

// Identifies the tokens of a token file, regardless of the path.
struct TokenIdentity {
  int64_t num_tokens = 0;
  // 64-bit XXH3 of the bytes of /tokens as 16 hexadecimal digits. With a loss mask, the XXH3 of the hashes of /tokens,
  // /loss_mask and /document_offsets, one per line. The hash is empty if it is not recorded and the data is too large
  // to hash.
  std::string tokens_xxh3;
  // Hash of /document_offsets, or of its beginning; set only if tokens_xxh3 is empty.
  std::string documents_xxh3;
  // Provenance of the tokens, which is not part of the identity.
  Tokenization tokenization{};

  bool operator==(const TokenIdentity&) const = default;
};

// Optional attribute of /tokens and /loss_mask with the hash of the bytes.
inline constexpr const char* kTokensHashName = "xxh3_64";

// Maximum number of bytes to hash at the start of a run. Hashing 1 GiB takes about 10 s at 100 MB/s.
inline constexpr int64_t kMaxIdentityBytes = int64_t{1} << 30;

// Returns the identity of a file that TokenDataset has checked. Uses the hash attribute if present, otherwise reads at
// most `max_bytes`. Throws UserError if the file cannot be read or the attribute is not a valid hash.
TokenIdentity read_token_identity(const std::filesystem::path& path, int64_t max_bytes = kMaxIdentityBytes);

// Returns the identity of a mixture, independent of the order of the sources. `sources` must not be empty and must
// share a tokenizer. The end-of-turn token and the chat template are taken from the first source with chat data.
TokenIdentity identity_of(std::span<const TokenIdentity> sources);

// Returns the shuffle seed of a source in a mixture, independent of the other sources.
uint64_t order_seed(uint64_t seed, const TokenIdentity& source);

// Returns true if `a` and `b` identify the same tokens, or std::nullopt if their token counts match but they
// have no type of hash in common.
std::optional<bool> same_tokens(const TokenIdentity& a, const TokenIdentity& b);

// Returns text such as "3001 tokens (1a2b3c4d)".
std::string show(const TokenIdentity& identity);

}  // namespace mpzero::io
