#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

namespace mpzero::io {

namespace hdf5 {
class File;
}

// Tokenization settings recorded in a token file. Older versions of the format lack the optional fields.
struct Tokenization {
  std::string tokenizer;  // name or path, or "bytes" for the built-in tokenizer
  int64_t vocab_size = 0;
  std::optional<int64_t> eos_token_id;               // appended to each document
  std::optional<int64_t> bos_token_id;               // BOS token of the tokenizer, if defined
  std::optional<bool> add_bos;                       // true if each document starts with bos_token_id
  std::optional<int64_t> end_of_turn_token_id = {};  // ends the assistant turns in chat data
  std::string chat_template = {};                    // empty if not recorded
  std::string tokenizer_hash;  // hash_of(TokenizerVocabulary); empty for "bytes" or if not recorded

  bool operator==(const Tokenization&) const = default;
};

// Reads the attributes of a token file.
Tokenization read_tokenization(const hdf5::File& file);

// Convert a Tokenization to and from JSON in a checkpoint's settings. from_json() ignores values of an unexpected type.
void to_json(nlohmann::ordered_json& object, const Tokenization& tokens);
void from_json(const nlohmann::json& object, Tokenization& tokens);

// Token ids of a Hugging Face tokenizer.
struct TokenizerVocabulary {
  std::map<int64_t, std::string> tokens;  // token text by id
  int64_t regular = 0;                    // largest id that occurs in text, plus 1

  // Returns the largest id plus 1, including added tokens.
  int64_t size() const { return tokens.empty() ? 0 : tokens.rbegin()->first + 1; }
};

// Reads tokenizer.json: {"model": {"vocab": {"word": id, ...}}, "added_tokens": [{"id": id, "content": "word"}, ...]}.
// The vocabulary of a Unigram model is a list of [word, score]. An added token overrides a word with the same id.
// `flag` is the prefix of error messages. Throws UserError if the file is invalid.
TokenizerVocabulary read_tokenizer_json(const std::filesystem::path& file, const std::string& flag = "");

// Reads vocab.json: {"word": id, ...}.
TokenizerVocabulary read_vocab_json(const std::filesystem::path& file, const std::string& flag = "");

// Returns "xxh3:" and 16 hexadecimal digits: the XXH3-64 of the lines "{id}\t{token}\n" in ascending order of ids.
// app/prepare/encoders.py computes the same hash.
std::string hash_of(const TokenizerVocabulary& vocabulary);

}  // namespace mpzero::io
