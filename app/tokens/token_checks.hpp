#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "io/data/tokenization.hpp"

namespace mpzero {

// What --allow_changed takes for tokens of another tokenizer.
inline constexpr const char* kTokenizerKey = "tokenizer";

// What a model expects of its tokens.
struct ExpectedTokens {
  std::string model;                     // where it is described, for sentences: a config.json
  std::vector<int64_t> eos_token_ids{};  // of config.json and generation_config.json
  std::optional<int64_t> bos_token_id{};
  int64_t vocab_size = 0;
  std::string weights{};         // the folder of --init_from; empty: random weights
  std::string tokenizer_hash{};  // of the tokenizer beside the weights; empty: not known
  bool may_differ = false;       // --allow_changed tokenizer
};

// A token file that a run reads.
struct TokenFile {
  std::string flag;  // --train_data
  std::string path;
  io::Tokenization tokens;
};

// Throws UserError where the tokens are of another tokenizer than the one beside the weights. Returns a sentence for
// each id of the file that the model does not expect. A file of an older version, without the tokenizer's hash, is not
// refused, since runs have begun with it.
std::vector<std::string> check_tokens(const TokenFile& file, const ExpectedTokens& expected);

// Whether the two are known to differ: in their hashes, or one has a hash and the other is of the built-in bytes.
bool are_of_other_tokenizers(const io::Tokenization& one, const io::Tokenization& other);

// "NAME (xxh3:0123456789abcdef)"
std::string show_tokenizer(const io::Tokenization& tokens);

// The same for a file, such as one of validation data, beside the training data.
std::vector<std::string> check_same_tokenizer(const TokenFile& file, const TokenFile& train, bool may_differ);

// Throws UserError where two sources of a mixture give an id two meanings. --allow_changed tokenizer does not permit
// it: it is for a change, not for both at once.
void check_one_tokenizer(const TokenFile& source, const TokenFile& first);

}  // namespace mpzero
