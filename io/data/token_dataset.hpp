#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "io/data/tokenization.hpp"

namespace mpzero::io {

// A token file as app/prepare_data.py writes it: `/tokens` (uint16 or uint32), `/document_offsets` (uint64, n + 1) and
// the attributes format_version, source, those of a Tokenization and, if known, max_token_id. Optionally `/loss_mask`
// (uint8 or float, one value per token): the weight of the token's loss as a target. If the file has `/tokens_xxh3`,
// every token that is read is verified (TokenBlocks). Opening checks that the file is complete and holds at least one
// window. Throws UserError naming the file.
//
// A packed file (format version 2) holds rows of packed_sequence_length tokens and one extra token; no document crosses
// the end of a row, and /loss_mask is required. It can only be read with that seq_length.
//
// A file of pairs (format version 3) is also packed: a row is a source of source_length tokens, then its target, both
// padded at their end with pad_token_id.
//
// A window is a training sequence with its targets: seq_length + 1 tokens, of which the first seq_length are inputs and
// the last seq_length are targets.
class TokenDataset {
 public:
  struct Pairs {
    int64_t source_length = 0, pad_token_id = 0;
  };
  // `document_mask`: whether append_document_ends() reports the documents of a window, which keeps all document offsets
  // in memory (8 bytes each); default: only for a packed file.
  TokenDataset(std::filesystem::path path, int64_t seq_length, std::optional<bool> document_mask = std::nullopt);
  ~TokenDataset();
  TokenDataset(TokenDataset&&) noexcept;
  TokenDataset& operator=(TokenDataset&&) noexcept;

  const std::filesystem::path& path() const;
  int64_t seq_length() const;
  int64_t num_tokens() const;
  int64_t num_documents() const;
  bool is_packed() const;
  const Tokenization& tokenization() const;
  // The tokenizer's vocabulary size. All ids in the file are smaller.
  int64_t vocab_size() const { return tokenization().vocab_size; }
  int64_t eos_token_id() const { return *tokenization().eos_token_id; }
  // Throws UserError if, according to its attributes, the file holds ids that a vocabulary of `vocab_limit` lacks.
  void check_vocabulary(int64_t vocab_limit) const;
  const std::string& tokenizer() const { return tokenization().tokenizer; }
  const std::string& source() const;
  // Whether a changed byte of the tokens would be detected.
  bool has_checksums() const;
  // XXH3 (64 bits, 16 hexadecimal digits) of all tokens as stored. Identifies the dataset regardless of the file's
  // name. Empty if the file lacks it.
  const std::string& content_hash() const;
  // Consecutive windows overlap by one token: window i is tokens[i*S : i*S + S + 1].
  int64_t num_windows() const;
  // Reads windows one after another into `out` (seq_length + 1 values each). Throws UserError if a token id is >=
  // vocab_limit, naming file, position, id and limit; if a token was never written or is damaged; and if the file was
  // truncated, overwritten or replaced since it was opened (FileWatch). Not thread-safe.
  void read_windows(std::span<const int64_t> windows, int64_t vocab_limit, std::span<int64_t> out) const;
  bool has_loss_mask() const;
  // Reads the weights of the windows' targets (seq_length each) into `out`. Throws UserError if one is negative or not
  // finite, and as read_windows() does. Not thread-safe.
  void read_loss_mask(std::span<const int64_t> windows, std::span<float> out) const;
  // Only for a file of pairs.
  const std::optional<Pairs>& pairs() const;
  bool masks_documents() const;
  // Appends to `ends` the ends of documents among a window's inputs, ascending, including the window's end; its first
  // input is position `begin`. The first and last document may be clipped.
  void append_document_ends(int64_t window, int64_t begin, std::vector<int32_t>& ends) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace mpzero::io
