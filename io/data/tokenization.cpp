#include "io/data/tokenization.hpp"

#include <nlohmann/json.hpp>

#include "io/hdf5/file.hpp"

namespace mpzero::io {
namespace {

constexpr const char* kTokenizer = "tokenizer";
constexpr const char* kVocabSize = "vocab_size";
constexpr const char* kEos = "eos_token_id";
constexpr const char* kBos = "bos_token_id";
constexpr const char* kAddBos = "add_bos";
constexpr const char* kEndOfTurn = "end_of_turn_token_id";
constexpr const char* kTemplate = "chat_template";
constexpr const char* kHash = "tokenizer_hash";

}  // namespace

Tokenization read_tokenization(const hdf5::File& file) {
  Tokenization tokens{.tokenizer = file.text_attribute(kTokenizer),
                      .vocab_size = file.attribute<int64_t>(kVocabSize),
                      .eos_token_id = file.attribute<int64_t>(kEos),
                      .bos_token_id = {},
                      .add_bos = {},
                      .end_of_turn_token_id = {},
                      .chat_template = {},
                      .tokenizer_hash = {}};
  if (file.has_attribute(kBos)) tokens.bos_token_id = file.attribute<int64_t>(kBos);
  if (file.has_attribute(kAddBos)) tokens.add_bos = file.attribute<int64_t>(kAddBos) != 0;
  if (file.has_attribute(kEndOfTurn)) tokens.end_of_turn_token_id = file.attribute<int64_t>(kEndOfTurn);
  if (file.has_attribute(kTemplate)) tokens.chat_template = file.text_attribute(kTemplate);
  if (file.has_attribute(kHash)) tokens.tokenizer_hash = file.text_attribute(kHash);
  return tokens;
}

void to_json(nlohmann::ordered_json& object, const Tokenization& tokens) {
  object = {{kTokenizer, tokens.tokenizer}, {kVocabSize, tokens.vocab_size}};
  if (tokens.eos_token_id) object[kEos] = *tokens.eos_token_id;
  if (tokens.bos_token_id) object[kBos] = *tokens.bos_token_id;
  if (tokens.add_bos) object[kAddBos] = *tokens.add_bos;
  if (tokens.end_of_turn_token_id) object[kEndOfTurn] = *tokens.end_of_turn_token_id;
  if (!tokens.chat_template.empty()) object[kTemplate] = tokens.chat_template;
  if (!tokens.tokenizer_hash.empty()) object[kHash] = tokens.tokenizer_hash;
}

void from_json(const nlohmann::json& object, Tokenization& tokens) {
  const auto member = [&](const char* key) {
    return object.is_object() ? object.value(key, nlohmann::json()) : nullptr;
  };
  const auto id = [&](const char* key) {
    const nlohmann::json value = member(key);
    return value.is_number_integer() ? std::optional(value.get<int64_t>()) : std::nullopt;
  };
  const auto text = [&](const char* key) {
    const nlohmann::json value = member(key);
    return value.is_string() ? value.get<std::string>() : "";
  };
  tokens = {.tokenizer = text(kTokenizer),
            .vocab_size = id(kVocabSize).value_or(0),
            .eos_token_id = id(kEos),
            .bos_token_id = id(kBos),
            .add_bos = {},
            .end_of_turn_token_id = id(kEndOfTurn),
            .chat_template = text(kTemplate),
            .tokenizer_hash = text(kHash)};
  if (const nlohmann::json value = member(kAddBos); value.is_boolean()) tokens.add_bos = value.get<bool>();
}

}  // namespace mpzero::io
