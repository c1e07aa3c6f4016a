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

// How the tokens of a file were made, as far as the file records it: files of older versions lack the optional fields.
struct Tokenization {
  std::string tokenizer;  // name or path; "bytes": the built-in one
  int64_t vocab_size = 0;
  std::optional<int64_t> eos_token_id;               // ends each document
  std::optional<int64_t> bos_token_id;               // of the tokenizer, if it has one
  std::optional<bool> add_bos;                       // whether bos_token_id begins each document
  std::optional<int64_t> end_of_turn_token_id = {};  // ends the trained turns of chat data
  std::string chat_template = {};                    // template of the chat data; empty: not recorded
  std::string tokenizer_hash;  // as hash_of(TokenizerVocabulary); empty: not recorded, or the tokenizer is bytes

  bool operator==(const Tokenization&) const = default;
};

// The attributes of a token file.
Tokenization read_tokenization(const hdf5::File& file);

// For the settings in a checkpoint. from_json() skips values of an unexpected type.
void to_json(nlohmann::ordered_json& object, const Tokenization& tokens);
void from_json(const nlohmann::json& object, Tokenization& tokens);

// The ids of a Hugging Face tokenizer.
struct TokenizerVocabulary {
  std::map<int64_t, std::string> tokens;  // by id
  int64_t regular = 0;                    // one more than the largest id that occurs in texts

  // One more than the largest id, added tokens included.
  int64_t size() const { return tokens.empty() ? 0 : tokens.rbegin()->first + 1; }
};

// From tokenizer.json: {"model": {"vocab": {"word": id, ...}}, "added_tokens": [{"id": id, "content": "word"}, ...]}; a
// Unigram model has a list of [word, score]. An added token overrides a word of the same id. `flag` is the prefix of
// messages. Throws UserError naming the file.
TokenizerVocabulary read_tokenizer_json(const std::filesystem::path& file, const std::string& flag = "");

// From vocab.json: {"word": id, ...}.
TokenizerVocabulary read_vocab_json(const std::filesystem::path& file, const std::string& flag = "");

// "xxh3:" and 16 hexadecimal digits of XXH3-64 over "{id}\t{token}\n" of all ids in ascending order: depends only on
// the ids, not on the location of the files. Same as in app/prepare/encoders.py.
std::string hash_of(const TokenizerVocabulary& vocabulary);

}  // namespace mpzero::io
