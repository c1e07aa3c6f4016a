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

// Collects the values that each key accepts and the keys that mpzero ignores, grouped by reason, so that each reason is
// one line.
class NotActedOn {
 public:
  // {"zero_optimization.stage": {"type": "integer", "minimum": 0, "maximum": 3, "auto": false}, ...}; only the first
  // read of a key counts.
  nlohmann::ordered_json accepted = nlohmann::ordered_json::object();

  void add(const std::string& key_path, const std::string& what_happens_instead);
  std::vector<std::string> lines(const std::string& file) const;

  // Keeps only the first problem of a key, since others may follow from it.
  void add_problem(const std::string& key_path, const std::string& sentence);
  // Throws UserError with all problems.
  void refuse_problems(const std::string& file) const;

 private:
  std::vector<std::pair<std::string, std::string>> problems_;                     // by key
  std::vector<std::pair<std::string, std::vector<std::string>>> keys_by_reason_;  // in the order of first use
};

enum class Auto { kAllowed, kRefused };

// Reads one JSON object key by key. Each key that is read counts as known. finish() refuses the rest. A key whose value
// is null counts as missing, as in DeepSpeed. Problems, with the key's full path, are collected in NotActedOn; a
// setting with a problem counts as missing.
class ObjectReader {
 public:
  ObjectReader(const nlohmann::json& object, std::string path, const std::string& file, NotActedOn& not_acted_on);

  bool has(const std::string& key);

  // A whole number. A float such as 5e8 is accepted if it is whole.
  void read(const std::string& key, Setting<int64_t>& setting, Auto allow_auto, int64_t minimum,
            int64_t maximum = std::numeric_limits<int64_t>::max());
  void read(const std::string& key, Setting<double>& setting, Auto allow_auto, double minimum, double maximum);
  void read(const std::string& key, Setting<bool>& setting, Auto allow_auto);
  // One of `choices`, case-insensitive. The setting takes the spelling in `choices`.
  void read(const std::string& key, Setting<std::string>& setting, Auto allow_auto,
            const std::vector<std::string>& choices);
  void read(const std::string& key, Setting<std::pair<double, double>>& setting, Auto allow_auto, double minimum,
            double maximum);
  // A list of words, none of them empty. `or_one`: one word counts as a list.
  void read(const std::string& key, Setting<std::vector<std::string>>& setting, bool or_one = false);
  std::optional<std::string> read_text(const std::string& key);

  // The object under `key`, whose keys the caller reads and finishes. std::nullopt if the key is missing.
  std::optional<ObjectReader> section(const std::string& key);

  // Known keys whose effect mpzero does not need. They cause no warning.
  void harmless(std::initializer_list<const char*> keys);
  // Known keys that mpzero ignores: a line for each that is set and differs from `quiet_value`.
  void not_acted_on(std::initializer_list<const char*> keys, const nlohmann::json& quiet_value,
                    const std::string& what_happens_instead);
  // A known key that must be missing, null, "auto" or `accepted`: other values would change the training.
  void only(const std::string& key, const nlohmann::json& accepted, const std::string& remedy);
  // A known section that must be missing or have "enabled": false. Its other keys are not checked.
  void refuse_enabled(const std::string& key, const std::string& remedy);

  // Refuses each key that was not read.
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
