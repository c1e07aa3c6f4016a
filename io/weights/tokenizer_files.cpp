#include "io/weights/tokenizer_files.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>
#include <system_error>

#include "base/error.hpp"
#include "base/json.hpp"
#include "base/parameter_spec.hpp"
#include "io/data/tokenization.hpp"
#include "io/files/atomic_file.hpp"
#include "io/hub/hub_cache.hpp"

namespace mpzero::io {
namespace fs = std::filesystem;
using nlohmann::json;
namespace {

// Tokenizer file names in transformers.
constexpr std::array<const char*, 9> kNames = {
    "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json",     "vocab.json",
    "merges.txt",     "tokenizer.model",       kChatTemplateName,         "generation_config.json"};

constexpr const char* kGenerationConfig = "generation_config.json";

// Returns the object in a JSON file, or null if the file does not exist.
json read_object(const fs::path& file) {
  if (!path_exists(file)) return nullptr;
  const std::optional<std::string> text = read_json_text(file, kConfigurationLimits);
  if (!text) throw_user_error("{} cannot be read; check its permissions", file.string());
  json object = parse_user_json(*text, file.string(), kConfigurationLimits);
  if (!object.is_object()) throw_user_error("{} is not a JSON object; copy or download it again", file.string());
  return object;
}

bool is_readable(const fs::path& file) {
  try {
    read_object(file);
    return true;
  } catch (const UserError&) {
    return false;
  }
}

}  // namespace

Tokenization recorded_tokenization(const StoredCheckpoint& checkpoint) {
  const std::string& text = checkpoint.progress().settings_json;
  if (text.empty()) return {};
  const json settings = parse_user_json(text, "the settings of " + checkpoint.folder().string(), kConfigurationLimits);
  // app/config/recorded_settings.cpp writes this key.
  const json::json_pointer place("/train_data/tokenization");
  return settings.contains(place) ? settings[place].get<Tokenization>() : Tokenization{};
}

std::vector<int64_t> generation_eos_ids(const fs::path& folder, int64_t vocab_size, const Warn& warn) {
  const fs::path file = folder / kGenerationConfig;
  const json config = read_object(file);
  const json ids = config.is_object() ? config.value(kEosKey, json()) : json();
  if (ids.is_null()) return {};
  std::vector<int64_t> all;
  for (const json& id : ids.is_array() ? ids : json::array({ids})) {
    if (!id.is_number_integer()) {
      throw_user_error("{}: {} is {}, but must be an integer or a list of integers", file.string(), kEosKey,
                       ids.dump());
    }
    // An unsigned 64-bit number may exceed int64_t.
    const bool is_id = id.is_number_unsigned() && id.get<uint64_t>() < static_cast<uint64_t>(vocab_size);
    if (is_id) {
      all.push_back(id.get<int64_t>());
    } else {
      warn(fmt::format("{}: {} {} is outside the vocabulary and is ignored", file.string(), kEosKey, id.dump()));
    }
  }
  return all;
}

int64_t vocab_size_of(const StoredCheckpoint& checkpoint) {
  const auto all = checkpoint.parameters();
  const auto found = std::ranges::find_if(all, is_embedding, &ParameterSpec::name);
  return found == all.end() ? kAnyVocabulary : found->shape.at(0);
}

std::vector<int64_t> more_eos_ids(const StoredCheckpoint& checkpoint, const fs::path& tokenizer, const Warn& warn) {
  std::vector<int64_t> ids;
  const Tokenization tokens = recorded_tokenization(checkpoint);
  for (const std::optional<int64_t>& id : {tokens.eos_token_id, tokens.end_of_turn_token_id}) {
    if (id) ids.push_back(*id);
  }
  if (tokenizer.empty()) return ids;
  try {
    const std::vector<int64_t> more = generation_eos_ids(tokenizer, vocab_size_of(checkpoint), warn);
    ids.insert(ids.end(), more.begin(), more.end());
  } catch (const UserError& error) {
    warn(fmt::format("{}; its {} is ignored", error.what(), kEosKey));
  }
  return ids;
}

void agree_with_config(const fs::path& folder, const std::string& config, bool creates) {
  const fs::path file = folder / kGenerationConfig;
  json generation = read_object(file);
  const bool is_new = generation.is_null();
  if (config.empty() || (is_new && !creates)) return;
  const json before = generation;
  if (is_new) generation = json::object();
  const json model = json::parse(config);
  const auto has = [](const json& object, const char* key) { return object.contains(key) && !object[key].is_null(); };
  if (has(model, kEosKey)) generation[kEosKey] = model[kEosKey];
  for (const char* key : {"bos_token_id", "pad_token_id"}) {
    if (has(model, key) && (is_new || has(generation, key))) generation[key] = model[key];
  }
  if (generation != before) write_text_file(file, generation.dump(2) + "\n");
}

std::string tokenizer_hash_of(const fs::path& folder) {
  const fs::path file = folder / "tokenizer.json";
  return path_exists(file) ? hash_of(read_tokenizer_json(file)) : "";
}

bool holds_tokenizer(const fs::path& folder) {
  std::error_code ignored;
  return fs::exists(folder / "tokenizer.json", ignored) || fs::exists(folder / "tokenizer.model", ignored) ||
         (fs::exists(folder / "vocab.json", ignored) && fs::exists(folder / "merges.txt", ignored));
}

std::string recorded_tokenizer(const StoredCheckpoint& checkpoint) {
  if (const std::string name = recorded_tokenization(checkpoint).tokenizer; !name.empty()) return name;
  // Format of older versions: "187 sequences of 16 tokens, tokenizer NAME, shuffled".
  constexpr std::string_view kBefore = ", tokenizer ";
  const std::string& order = checkpoint.progress().data_order;
  const size_t begin = order.find(kBefore);
  const size_t end = order.rfind(", ");
  if (begin == std::string::npos || end <= begin) return "";
  return order.substr(begin + kBefore.size(), end - begin - kBefore.size());
}

fs::path tokenizer_folder(const StoredCheckpoint& checkpoint, const Warn& warn) {
  const std::string wanted = recorded_tokenization(checkpoint).tokenizer_hash;
  const std::string of_data = recorded_tokenizer(checkpoint);
  if (of_data == kBytesTokenizer && wanted.empty()) return {};
  for (const std::string& name : {checkpoint.run().init_from, of_data}) {
    const fs::path folder = hub_snapshot_or(name);
    if (folder.empty() || !holds_tokenizer(folder)) continue;
    try {
      const std::string hash = wanted.empty() ? "" : tokenizer_hash_of(folder);
      if (hash.empty() || hash == wanted) return folder;
    } catch (const UserError& error) {
      warn(fmt::format("{}; the folder is skipped", error.what()));
    }
  }
  return {};
}

void check_tokenizer(const fs::path& folder) {
  if (holds_tokenizer(folder)) return;
  throw_user_error(
      "--tokenizer {}: the folder has neither tokenizer.json nor tokenizer.model nor vocab.json and merges.txt; pass "
      "the folder of a tokenizer",
      folder.string());
}

std::vector<std::string> copy_tokenizer(const fs::path& folder, const fs::path& output, bool replaces) {
  check_tokenizer(folder);
  std::vector<std::string> copied;
  for (const char* name : kNames) {
    std::error_code error;
    if (!fs::exists(folder / name, error)) continue;
    if (name == std::string_view(kGenerationConfig) && !is_readable(folder / name)) continue;
    const auto how = replaces ? fs::copy_options::overwrite_existing : fs::copy_options::skip_existing;
    const bool is_copied = fs::copy_file(folder / name, output / name, how, error);
    if (error) {
      throw_user_error("{} cannot be copied to {} ({}); copy the file manually or select a different --tokenizer",
                       (folder / name).string(), output.string(), error.message());
    }
    if (is_copied) copied.emplace_back(name);
  }
  return copied;
}

}  // namespace mpzero::io
