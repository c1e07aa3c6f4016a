#include "io/data/tokenization.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>

#include "base/error.hpp"
#include "base/json.hpp"
#include "io/bytes/checksum.hpp"
#include "io/hdf5/file.hpp"

namespace mpzero::io {
namespace fs = std::filesystem;
using nlohmann::json;
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

namespace {

// Size limit in bytes. Files with large vocabularies reach tens of megabytes.
constexpr JsonLimits kTokenizerLimits{.bytes = size_t{256} << 20};
// Upper bound on token ids.
constexpr int64_t kLargestId = int64_t{1} << 31;

// A file and the prefix of its error messages.
struct Source {
  std::string name;

  json read(const fs::path& file) const {
    const std::optional<std::string> text = read_json_text(file, kTokenizerLimits);
    if (!text) throw_user_error("{} cannot be read; check its permissions.", name);
    json parsed = parse_user_json(*text, name, kTokenizerLimits);
    if (!parsed.is_object()) throw_user_error("{} is not a JSON object; use another file.", name);
    return parsed;
  }

  [[noreturn]] void refuse(const json& value, const char* expected) const {
    throw_user_error("{} has {} instead of {}; use another file.", name,
                     value.dump(-1, ' ', false, json::error_handler_t::replace).substr(0, 60), expected);
  }

  int64_t id(const json& value) const {
    const bool is_id = value.is_number_unsigned() && value.get<uint64_t>() < static_cast<uint64_t>(kLargestId);
    if (!is_id) refuse(value, "a token id");
    return value.get<int64_t>();
  }

  std::string word(const json& value) const {
    if (!value.is_string()) refuse(value, "a token");
    return value.get<std::string>();
  }

  void add_words(const json& words, TokenizerVocabulary& vocabulary) const {
    for (const auto& [word, value] : words.items()) vocabulary.tokens[id(value)] = word;
    vocabulary.regular = vocabulary.size();
  }
};

Source source_of(const fs::path& file, const std::string& flag) {
  return {.name = flag.empty() ? file.string() : fmt::format("{}: {}", flag, file.string())};
}

// Returns a member of an object, or null if the member is missing or `object` is not an object.
json member(const json& object, const char* key) { return object.is_object() ? object.value(key, json()) : json(); }

}  // namespace

TokenizerVocabulary read_tokenizer_json(const fs::path& file, const std::string& flag) {
  const Source source = source_of(file, flag);
  const json tokenizer = source.read(file);
  const json words = member(member(tokenizer, "model"), "vocab");
  TokenizerVocabulary vocabulary;
  if (words.is_object()) {
    source.add_words(words, vocabulary);
  } else if (words.is_array()) {
    for (const json& entry : words) {
      vocabulary.tokens[vocabulary.regular++] = source.word(entry.is_array() && !entry.empty() ? entry[0] : entry);
    }
  } else {
    throw_user_error("{} has no model.vocab; use a Hugging Face tokenizer.json.", source.name);
  }
  for (const json& added : member(tokenizer, "added_tokens")) {
    vocabulary.tokens[source.id(member(added, "id"))] = source.word(member(added, "content"));
  }
  return vocabulary;
}

TokenizerVocabulary read_vocab_json(const fs::path& file, const std::string& flag) {
  const Source source = source_of(file, flag);
  TokenizerVocabulary vocabulary;
  source.add_words(source.read(file), vocabulary);
  return vocabulary;
}

std::string hash_of(const TokenizerVocabulary& vocabulary) {
  StreamingChecksum sum;
  for (const auto& [id, token] : vocabulary.tokens) {
    const std::string line = fmt::format("{}\t{}\n", id, token);
    sum.add(std::as_bytes(std::span(line)));
  }
  return "xxh3:" + to_hex(sum.value());
}

}  // namespace mpzero::io
