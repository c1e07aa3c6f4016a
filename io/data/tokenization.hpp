#pragma once

#include <cstdint>
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
  std::string chat_template = {};                    // that rendered chat data; empty: not recorded
  std::string tokenizer_hash;  // as hash_of(TokenizerVocabulary); empty: not recorded, or the tokenizer is bytes

  bool operator==(const Tokenization&) const = default;
};

// The attributes of a token file.
Tokenization read_tokenization(const hdf5::File& file);

// For the settings that a checkpoint records. from_json() passes over what has another type.
void to_json(nlohmann::ordered_json& object, const Tokenization& tokens);
void from_json(const nlohmann::json& object, Tokenization& tokens);

}  // namespace mpzero::io
