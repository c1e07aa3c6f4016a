#pragma once

#include <cstdint>
#include <initializer_list>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "io/ds_config/ds_config.hpp"

namespace mpzero::io {

// Collects accepted values, ignored keys and problems while a file is read. Ignored keys are grouped by reason.
class NotActedOn {
 public:
  // Schema in the format of ds_config_keys(). Only the first read of a key is recorded.
  nlohmann::ordered_json accepted = nlohmann::ordered_json::object();

  void add(const std::string& key_path, const std::string& what_happens_instead);
  std::vector<std::string> lines(const std::string& file) const;

  // Adds a problem with a key. Ignores later problems with the same key because the first problem may cause them.
  void add_problem(const std::string& key_path, const std::string& sentence);
  // Throws UserError with all collected problems, if any.
  void refuse_problems(const std::string& file) const;

 private:
  std::vector<std::pair<std::string, std::string>> problems_;                     // key and sentence
  std::vector<std::pair<std::string, std::vector<std::string>>> keys_by_reason_;  // in the order of first use
};

enum class Auto { kAllowed, kRefused };

// Reads one JSON object key by key. finish() rejects all keys that were neither read nor marked as known. A null value
// counts as missing, as in DeepSpeed. Problems are collected in NotActedOn with the full path of the key. A setting
// with a problem counts as missing.
class ObjectReader {
 public:
  ObjectReader(const nlohmann::json& object, std::string path, const std::string& file, NotActedOn& not_acted_on);

  bool has(const std::string& key);

  // Reads an integer. Also accepts a floating-point number without a fraction, such as 5e8.
  void read(const std::string& key, Setting<int64_t>& setting, Auto allow_auto, int64_t minimum,
            int64_t maximum = std::numeric_limits<int64_t>::max());
  void read(const std::string& key, Setting<double>& setting, Auto allow_auto, double minimum, double maximum);
  void read(const std::string& key, Setting<bool>& setting, Auto allow_auto);
  // Reads one of `choices`, case-insensitively. `setting` receives the spelling in `choices`.
  void read(const std::string& key, Setting<std::string>& setting, Auto allow_auto,
            const std::vector<std::string>& choices);
  void read(const std::string& key, Setting<std::pair<double, double>>& setting, Auto allow_auto, double minimum,
            double maximum);
  // Reads a list of non-empty strings or, if `or_one` is true, a single string.
  void read(const std::string& key, Setting<std::vector<std::string>>& setting, bool or_one = false);
  std::optional<std::string> read_text(const std::string& key);

  // Returns a reader for the object `key`, or std::nullopt if the key is missing. The caller must call finish() on the
  // reader.
  std::optional<ObjectReader> section(const std::string& key);

  // Marks keys as known without a warning because they have no effect in mpzero.
  void harmless(std::initializer_list<const char*> keys);
  // Marks keys as known and ignored. Adds a warning for each key that is set to a value other than `quiet_value`.
  void not_acted_on(std::initializer_list<const char*> keys, const nlohmann::json& quiet_value,
                    const std::string& what_happens_instead);
  // Rejects `key` unless it is missing, null, "auto" or `accepted`, because any other value would change the result of
  // training.
  void only(const std::string& key, const nlohmann::json& accepted, const std::string& remedy);
  // Rejects the section `key` unless it is missing or contains "enabled": false. Other keys of the section are not
  // checked.
  void refuse_enabled(const std::string& key, const std::string& remedy);

  // Rejects each key that was neither read nor marked as known.
  void finish() const;

  std::string path_of(const std::string& key) const;
  void refuse(const std::string& key, const std::string& message) const;

 private:
  const nlohmann::json* find(const std::string& key);
  void note(const std::string& key, const char* type, nlohmann::ordered_json limits = {});
  template <typename T>
  const nlohmann::json* find_value(const std::string& key, Setting<T>& setting, Auto allow_auto,
                                   const char* wanted_type);
  std::optional<double> number(const std::string& key, const nlohmann::json& value, double minimum,
                               double maximum) const;

  const nlohmann::json* object_;
  std::string path_;
  std::string file_;
  NotActedOn* not_acted_on_;
  std::vector<std::string> known_;
};

}  // namespace mpzero::io
