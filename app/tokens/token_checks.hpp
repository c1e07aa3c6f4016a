#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "io/data/tokenization.hpp"

namespace mpzero {

// Key of --allow_changed for tokens from another tokenizer.
inline constexpr const char* kTokenizerKey = "tokenizer";

// The token ids and tokenizer that a model expects.
struct ExpectedTokens {
  std::string model;                     // its config.json, for messages
  std::vector<int64_t> eos_token_ids{};  // from config.json and generation_config.json
  std::optional<int64_t> bos_token_id{};
  int64_t vocab_size = 0;
  std::string weights{};         // the folder of --init_from; empty: random weights
  std::string tokenizer_hash{};  // of the tokenizer next to the weights; empty: unknown
  bool may_differ = false;       // --allow_changed tokenizer
};

// A token file that a run reads.
struct TokenFile {
  std::string flag;  // --train_data
  std::string path;
  io::Tokenization tokens;
};

// Throws UserError if the tokens are from a different tokenizer than the one next to the weights. Returns a warning per
// id of the file that the model does not expect. Files from older versions, without the tokenizer's hash, are not
// refused, because existing runs use them.
std::vector<std::string> check_tokens(const TokenFile& file, const ExpectedTokens& expected);

// Whether the tokenizers are known to differ: by hash, or one has a hash and the other is the built-in "bytes".
bool are_of_other_tokenizers(const io::Tokenization& one, const io::Tokenization& other);

// "NAME (xxh3:0123456789abcdef)"
std::string show_tokenizer(const io::Tokenization& tokens);

// Like check_tokens(), but compares a file, such as validation data, with the training data.
std::vector<std::string> check_same_tokenizer(const TokenFile& file, const TokenFile& train, bool may_differ);

// Throws UserError if an id has different meanings in two sources of a mixture, even with --allow_changed tokenizer,
// which allows a change but not a mixture.
void check_one_tokenizer(const TokenFile& source, const TokenFile& first);

}  // namespace mpzero
