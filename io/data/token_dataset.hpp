#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>

namespace mpzero::io {

// A token file as app/prepare_data.py writes it: `/tokens` (uint16 or uint32), `/document_offsets` (uint64, n + 1) and
// the attributes format_version, vocab_size, eos_token_id, tokenizer, source and, if it was known, max_token_id. Where
// there is `/tokens_xxh3` every token that is read is verified (TokenBlocks). Opening checks that the file is whole and
// holds at least one window; what is wrong is thrown as UserError naming the file.
class TokenDataset {
 public:
  static constexpr int64_t kFormatVersion = 1;

  TokenDataset(std::filesystem::path path, int64_t seq_length);
  ~TokenDataset();
  TokenDataset(TokenDataset&&) noexcept;
  TokenDataset& operator=(TokenDataset&&) noexcept;

  const std::filesystem::path& path() const;
  int64_t seq_length() const;
  int64_t num_tokens() const;
  int64_t num_documents() const;
  // What the tokenizer could have written; the ids that occur are all smaller.
  int64_t vocab_size() const;
  int64_t eos_token_id() const;
  // Throws UserError where the file says of itself that it holds ids that a vocabulary of `vocab_limit` lacks.
  void check_vocabulary(int64_t vocab_limit) const;
  const std::string& tokenizer() const;
  const std::string& source() const;
  // Whether a changed byte of the tokens would be noticed.
  bool has_checksums() const;
  // XXH3 (64 bits, 16 hexadecimal digits) of all tokens as they are stored, which tells two data sets apart whatever
  // their files are called; empty where the file does not hold it.
  const std::string& content_hash() const;
  // Windows of seq_length + 1 tokens that overlap by one: window i is tokens[i*S : i*S + S + 1].
  int64_t num_windows() const;
  // Reads windows one behind the other into `out` (seq_length + 1 values each). Throws UserError where a token id is
  // >= vocab_limit, naming file, position, id and limit, where a token was never written or is not what was
  // written, and where the file was truncated, overwritten or replaced since it was opened (FileWatch). One thread at a
  // time.
  void read_windows(std::span<const int64_t> windows, int64_t vocab_limit, std::span<int64_t> out) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace mpzero::io
