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

// A token file in the format of app/prepare_data.py. The file contains the datasets `/tokens` (uint16 or uint32) and
// `/document_offsets` (uint64, n + 1) and the attributes format_version, source, the fields of Tokenization and
// optionally max_token_id. The optional dataset `/loss_mask` (uint8 or float, one value per token) contains the loss
// weight of each token as a target. If the file contains `/tokens_xxh3`, reads verify checksums (TokenBlocks). The
// constructor throws UserError if the file is incomplete or contains no full window.
//
// A packed file (format version 2) contains rows of packed_sequence_length tokens, followed by one extra token.
// Documents do not cross row boundaries. /loss_mask is required, and seq_length must equal packed_sequence_length.
//
// A file of pairs (format version 3) is a packed file. Each row consists of a source of source_length tokens and a
// target, each right-padded with pad_token_id.
//
// A window is a training sequence with its targets: seq_length + 1 tokens. The first seq_length tokens are inputs, and
// the last seq_length tokens are targets.
class TokenDataset {
 public:
  struct Pairs {
    int64_t source_length = 0, pad_token_id = 0;
  };
  // `document_mask` enables append_document_ends(), which keeps all document offsets in memory (8 bytes each). By
  // default, the document mask is enabled only for packed files.
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
  // Returns the tokenizer's vocabulary size, which is larger than all token ids in the file.
  int64_t vocab_size() const { return tokenization().vocab_size; }
  int64_t eos_token_id() const { return *tokenization().eos_token_id; }
  // Throws UserError if the recorded max_token_id is >= vocab_limit.
  void check_vocabulary(int64_t vocab_limit) const;
  const std::string& tokenizer() const { return tokenization().tokenizer; }
  const std::string& source() const;
  // Returns true if reads verify checksums.
  bool has_checksums() const;
  // Returns the 64-bit XXH3 of the stored tokens as 16 hexadecimal digits, or an empty string if the file does not
  // record the hash. The hash identifies the dataset regardless of the file name.
  const std::string& content_hash() const;
  // Returns the number of windows. Consecutive windows overlap by one token: window i is tokens[i*S : i*S + S + 1].
  int64_t num_windows() const;
  // Reads windows into `out`, seq_length + 1 values each. Throws UserError if a token id is >= vocab_limit, if a token
  // was never written or is damaged, or if the file was truncated, overwritten or replaced after it was opened. Not
  // thread-safe.
  void read_windows(std::span<const int64_t> windows, int64_t vocab_limit, std::span<int64_t> out) const;
  bool has_loss_mask() const;
  // Reads the loss weights of the windows' targets into `out`, seq_length values each. Throws UserError if a weight is
  // negative or not finite. See read_windows() for other errors. Not thread-safe.
  void read_loss_mask(std::span<const int64_t> windows, std::span<float> out) const;
  // Returns the layout of a file of pairs, or std::nullopt for other files.
  const std::optional<Pairs>& pairs() const;
  bool masks_documents() const;
  // Appends the end positions of the documents among a window's inputs to `ends`, ascending, including the end of the
  // window. `begin` is the position of the window's first input. The first and last document may be truncated.
  void append_document_ends(int64_t window, int64_t begin, std::vector<int32_t>& ends) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace mpzero::io
