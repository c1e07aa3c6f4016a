#pragma once

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include "io/bytes/checksum.hpp"
#include "io/hdf5/file.hpp"
#include "tests/io/temporary_folder.hpp"

namespace mpzero::io::testing {

inline void add_attributes(hdf5::File& file, int64_t vocab_size, int64_t version = 1) {
  file.set_attribute("format_version", version);
  file.set_attribute("vocab_size", vocab_size);
  file.set_attribute("eos_token_id", vocab_size - 1);
  file.set_attribute("tokenizer", "counting");
  file.set_attribute("source", "a test");
}

template <typename Token>
void add_tokens(hdf5::File& file, const std::vector<Token>& tokens, int64_t vocab_size,
                const std::vector<uint64_t>& document_offsets, int64_t version = 1) {
  const uint64_t size[] = {tokens.size()}, chunk[] = {std::clamp<uint64_t>(size[0], 1, 64)};
  {
    hdf5::Dataset data =
        tokens.empty() ? file.create_dataset<Token>("tokens", 0) : file.create_dataset<Token>("tokens", size, chunk);
    data.write(0, std::span<const Token>(tokens));
    hdf5::Dataset offsets = file.create_dataset<uint64_t>("document_offsets", document_offsets.size());
    offsets.write(0, std::span<const uint64_t>(document_offsets));
  }
  add_attributes(file, vocab_size, version);
}

// Writes a token file with one document and without checksums, as another program might.
template <typename Token>
void write_token_file(const std::filesystem::path& path, const std::vector<Token>& tokens, int64_t vocab_size,
                      std::vector<uint64_t> document_offsets = {}) {
  if (document_offsets.empty()) document_offsets = {0, tokens.size()};
  hdf5::File file = hdf5::File::create(path);
  add_tokens(file, tokens, vocab_size, document_offsets);
  file.close();
}

// Like write_token_file(), but with block checksums as in app/prepare_data.py. The file contains `tokens`, and the
// checksums are those of `written`.
template <typename Token>
void write_checked_file(const std::filesystem::path& path, const std::vector<Token>& tokens,
                        const std::vector<Token>& written, uint64_t block_size = 64) {
  hdf5::File file = hdf5::File::create(path);
  add_tokens(file, tokens, 1 << 20, {0, tokens.size()});
  std::vector<uint64_t> checksums;
  for (size_t begin = 0; begin < written.size(); begin += block_size) {
    const size_t size = std::min<size_t>(block_size, written.size() - begin);
    checksums.push_back(checksum(std::as_bytes(std::span(written).subspan(begin, size))));
  }
  {
    hdf5::Dataset table = file.create_dataset<uint64_t>("tokens_xxh3", checksums.size());
    table.write(0, std::span<const uint64_t>(checksums));
    table.set_attribute("block_size", block_size);
  }
  file.close();
}

// Like write_token_file(), but with a `/loss_mask`.
template <typename Token, typename Weight>
void write_masked_file(const std::filesystem::path& path, const std::vector<Token>& tokens, int64_t vocab_size,
                       const std::vector<Weight>& mask) {
  hdf5::File file = hdf5::File::create(path);
  add_tokens(file, tokens, vocab_size, {0, tokens.size()});
  {
    hdf5::Dataset data = file.create_dataset<Weight>("loss_mask", mask.size());
    data.write(0, std::span<const Weight>(mask));
  }
  file.close();
}

// Writes a packed file with rows of `row` tokens.
inline void write_packed_file(const std::filesystem::path& path, const std::vector<uint32_t>& tokens,
                              int64_t vocab_size, const std::vector<uint64_t>& document_offsets,
                              const std::vector<uint8_t>& mask, int64_t row, int64_t source_length = 0) {
  hdf5::File file = hdf5::File::create(path);
  add_tokens(file, tokens, vocab_size, document_offsets, source_length > 0 ? 3 : 2);
  file.set_attribute("packed_sequence_length", row);
  if (source_length > 0) {
    file.set_attribute("source_length", source_length);
    file.set_attribute("pad_token_id", int64_t{0});
  }
  if (!mask.empty()) {
    file.create_dataset<uint8_t>("loss_mask", mask.size()).write(0, std::span<const uint8_t>(mask));
  }
  file.close();
}

// Returns tokens 0, 1, 2, ...: window i of length S begins with token i * S, so a token identifies its window.
inline std::vector<uint32_t> counting_tokens(int64_t count) {
  std::vector<uint32_t> tokens(static_cast<size_t>(count));
  std::iota(tokens.begin(), tokens.end(), 0);
  return tokens;
}

// Returns the first element of `parts` that `message` does not contain; empty if `message` contains all parts.
inline std::string lacks(const std::string& message, const std::vector<std::string>& parts) {
  for (const std::string& part : parts) {
    if (message.find(part) == std::string::npos) return "no '" + part + "' in '" + message + "'";
  }
  return "";
}

// Returns the message of the Error that `work` throws; empty if `work` does not throw.
template <typename Error, typename Work>
std::string message_of(Work&& work) {
  try {
    work();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

}  // namespace mpzero::io::testing
