#pragma once

#include <cstdint>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

namespace mpzero::model {

inline constexpr const char* kOriginalPositions = "original_max_position_embeddings";

// Reads one JSON object of a Hugging Face config.json key by key. finish() rejects all keys that were not read. As in
// transformers, a null value counts as a missing key. All functions throw UserError with the file and the full path of
// the key.
class ConfigReader {
 public:
  // `path`: path of the object in the file, empty for the top level. `object` must outlive the reader.
  ConfigReader(const nlohmann::json& object, std::string source, std::string path = "");

  const nlohmann::json* find(const std::string& key);

  int64_t integer(const std::string& key, std::optional<int64_t> fallback = {});
  double number(const std::string& key, std::optional<double> fallback = {});
  bool boolean(const std::string& key, bool fallback);
  std::string text(const std::string& key, std::optional<std::string> fallback = {});
  // Returns the object under `key`, or std::nullopt if the key is missing.
  std::optional<ConfigReader> section(const std::string& key);

  // Registers keys that do not affect the model's computation, so that finish() accepts them.
  void harmless(std::initializer_list<const char*> keys);
  // Returns true if the key was read or registered as harmless.
  bool knows(const std::string& key) const;
  // Throws UserError unless the key is missing or has the value `accepted`. `remedy`: final clause of the error
  // message.
  void only(const std::string& key, const nlohmann::json& accepted, const std::string& remedy);
  // Throws UserError for the first key that was neither read nor registered.
  void finish() const;

  const nlohmann::json& object() const { return *object_; }
  const std::string& source() const { return source_; }
  std::string path_of(const std::string& key) const { return path_.empty() ? key : path_ + "." + key; }
  [[noreturn]] void wrong(const std::string& key, const nlohmann::json& value, const std::string& expected) const;

 private:
  [[noreturn]] void missing(const std::string& key) const;

  const nlohmann::json* object_;
  std::string source_;
  std::string path_;
  std::vector<std::string> known_;
};

}  // namespace mpzero::model
