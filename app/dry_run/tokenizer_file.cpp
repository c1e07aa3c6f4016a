#include "app/dry_run/tokenizer_file.hpp"

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/error.hpp"
#include "base/json.hpp"

namespace mpzero {

namespace fs = std::filesystem;

namespace {

using nlohmann::json;

// As app/prepare/encoders.py has it: 256 bytes and the end of a text.
constexpr TokenizerSize kBytes{.regular = 257, .all = 257};

// Those of large vocabularies have tens of megabytes.
constexpr JsonLimits kTokenizerLimits{.bytes = size_t{256} << 20};
// More than any vocabulary has.
constexpr int64_t kLargestId = int64_t{1} << 31;

json read_json(const fs::path& file) {
  const std::optional<std::string> text = read_json_text(file, kTokenizerLimits);
  if (!text) throw_user_error("--tokenizer: {} cannot be read; check its permissions.", file.string());
  json parsed = parse_user_json(*text, "--tokenizer: " + file.string(), kTokenizerLimits);
  if (!parsed.is_object()) throw_user_error("--tokenizer: {} holds no JSON object; give another one.", file.string());
  return parsed;
}

// One more than the largest of the ids.
int64_t count_ids(const json& ids, const fs::path& file) {
  int64_t count = 0;
  for (const json& id : ids) {
    const bool is_id = id.is_number_unsigned() && id.get<uint64_t>() < static_cast<uint64_t>(kLargestId);
    if (!is_id) {
      throw_user_error("--tokenizer: {} has {} where the id of a token should be; give another one.", file.string(),
                       id.dump(-1, ' ', false, json::error_handler_t::replace).substr(0, 60));
    }
    count = std::max(count, id.get<int64_t>() + 1);
  }
  return count;
}

// A member of an object; null where it is not there, or `object` is no object.
json member(const json& object, const char* key) { return object.is_object() ? object.value(key, json()) : json(); }

// {"model": {"vocab": {"word": id, ...}}, "added_tokens": [{"id": id}, ...]}; a Unigram model has a list of words.
TokenizerSize size_of_tokenizer_json(const fs::path& file) {
  const json tokenizer = read_json(file);
  const json vocabulary = member(member(tokenizer, "model"), "vocab");
  if (!vocabulary.is_object() && !vocabulary.is_array()) {
    throw_user_error("--tokenizer: {} has no model.vocab; give a tokenizer.json of Hugging Face.", file.string());
  }
  const int64_t regular = vocabulary.is_array() ? static_cast<int64_t>(vocabulary.size()) : count_ids(vocabulary, file);
  json ids = json::array();
  for (const json& added : member(tokenizer, "added_tokens")) ids.push_back(member(added, "id"));
  return {.regular = regular, .all = std::max(regular, count_ids(ids, file))};
}

// Whether it can only be a path; the same rule as in app/prepare/encoders.py.
bool is_path(const std::string& tokenizer) {
  return tokenizer.ends_with(".json") || tokenizer.find_first_of("/.~") == 0 ||
         std::count(tokenizer.begin(), tokenizer.end(), '/') > 1;
}

}  // namespace

std::optional<TokenizerSize> read_tokenizer_size(const std::string& tokenizer) {
  if (tokenizer == "bytes") return kBytes;
  const fs::path path = tokenizer;
  if (fs::is_regular_file(path)) return size_of_tokenizer_json(path);
  if (fs::is_directory(path)) {
    if (fs::exists(path / "tokenizer.json")) return size_of_tokenizer_json(path / "tokenizer.json");
    if (fs::exists(path / "vocab.json") && fs::exists(path / "merges.txt")) {
      const int64_t ids = count_ids(read_json(path / "vocab.json"), path / "vocab.json");
      return TokenizerSize{.regular = ids, .all = ids};
    }
    throw_user_error("--tokenizer {}: the folder has neither tokenizer.json nor vocab.json and merges.txt.", tokenizer);
  }
  if (!is_path(tokenizer)) return std::nullopt;
  throw_user_error("--tokenizer {} does not exist: give a file, a folder, a Hugging Face name, or bytes.", tokenizer);
}

}  // namespace mpzero
