#pragma once

#include <cstdint>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

namespace mpzero::model {

// Reads one JSON object of a Hugging Face config.json key by key. Each key that is read counts as known; finish()
// refuses all others. A key whose value is null counts as missing, as in transformers. Errors are UserErrors with the
// file and the key's full path.
class ConfigReader {
 public:
  // `path`: the object's path in the file, empty for the top level. `object` must outlive the reader.
  ConfigReader(const nlohmann::json& object, std::string source, std::string path = "");

  const nlohmann::json* find(const std::string& key);

  int64_t integer(const std::string& key, std::optional<int64_t> fallback = {});
  double number(const std::string& key, std::optional<double> fallback = {});
  bool boolean(const std::string& key, bool fallback);
  std::string text(const std::string& key, std::optional<std::string> fallback = {});
  // The object under `key`; std::nullopt if it is missing.
  std::optional<ConfigReader> section(const std::string& key);

  // Registers keys that do not change what the model computes.
  void harmless(std::initializer_list<const char*> keys);
  // Whether the key was read, or is known as harmless.
  bool knows(const std::string& key) const;
  // An option that must be missing or `accepted`: other values change what the model computes.
  void only(const std::string& key, const nlohmann::json& accepted, const std::string& remedy);
  // Throws for the first key that was not read.
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
