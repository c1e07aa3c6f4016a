#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "io/data/tokenization.hpp"

namespace mpzero {

// Value of --allow_changed that allows tokens from a different tokenizer.
inline constexpr const char* kTokenizerKey = "tokenizer";

// The token ids and tokenizer that a model expects.
struct ExpectedTokens {
  std::string model;                     // name of its config.json, for messages
  std::vector<int64_t> eos_token_ids{};  // from config.json and generation_config.json
  std::optional<int64_t> bos_token_id{};
  int64_t vocab_size = 0;
  std::string weights{};         // folder of --init_from; empty: random weights
  std::string tokenizer_hash{};  // hash of the tokenizer in the folder of the weights; empty: unknown
  bool may_differ = false;       // --allow_changed tokenizer
};

struct TokenFile {
  std::string flag;  // --train_data
  std::string path;
  io::Tokenization tokens;
};

// Throws UserError if the file's tokenizer differs from the tokenizer of the weights. Returns warnings about special
// token ids and vocabulary sizes that do not match the model. Accepts token files from older versions of mpzero, which
// have no tokenizer hash.
std::vector<std::string> check_tokens(const TokenFile& file, const ExpectedTokens& expected);

// Returns true if the tokenizers are known to differ: the hashes differ, or only one of the two is the built-in
// "bytes".
bool are_of_other_tokenizers(const io::Tokenization& one, const io::Tokenization& other);

// Formats the tokenizer as "NAME (xxh3:0123456789abcdef)".
std::string show_tokenizer(const io::Tokenization& tokens);

// Like check_tokens(), but compares the file with the training data.
std::vector<std::string> check_same_tokenizer(const TokenFile& file, const TokenFile& train, bool may_differ);

// Throws UserError if two sources of a mixture have different tokenizers, even with --allow_changed tokenizer.
void check_one_tokenizer(const TokenFile& source, const TokenFile& first);

}  // namespace mpzero
