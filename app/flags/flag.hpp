#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "app/flags/options.hpp"
#include "io/ds_config/ds_config.hpp"

namespace mpzero {

// Accessors of the Settings member that stores a flag's value.
template <typename T>
struct Field {
  void (*set)(Settings&, T);
  std::optional<T> (*get)(const Settings&);  // returns std::nullopt if the member is an empty optional
};

template <typename T>
struct ValueType {
  using Type = T;
};
template <typename T>
struct ValueType<std::optional<T>> {
  using Type = T;
};

template <auto... members>
constexpr auto make_field() {
  using Member = std::remove_cvref_t<decltype((std::declval<Settings&>().*....*members))>;
  using T = typename ValueType<Member>::Type;
  return Field<T>{.set = [](Settings& settings, T value) { (settings.*....*members) = std::move(value); },
                  .get = [](const Settings& settings) -> std::optional<T> { return (settings.*....*members); }};
}

// Accessors of a nested member: field<&Settings::optimizer, &OptimizerConfig::lr>.
template <auto... members>
inline constexpr auto field = make_field<members...>();

// Types of flag values, with their ranges.

struct Integer {
  Field<int64_t> field;
  int64_t minimum = 0;
  int64_t maximum = std::numeric_limits<int64_t>::max();
};

struct Unsigned {
  Field<uint64_t> field;
};

// A finite floating-point number.
struct Real {
  Field<double> field;
  double minimum = 0;
  bool may_be_minimum = true;                              // true: the minimum is inclusive
  double limit = std::numeric_limits<double>::infinity();  // exclusive
};

// A Boolean flag, which is true if it is set without a value.
struct Boolean {
  Field<bool> field;
};

struct Text {
  Field<std::string> field;
};

// Comma-separated names. `remark`: suffix of the error about an empty name.
struct Names {
  Field<std::vector<std::string>> field;
  std::string remark;
};

// One of `choices`. Each choice maps to a value of the flag's member in Settings.
struct Choice {
  std::vector<std::string> choices;
  std::string alone = {};  // value of a bare flag; empty: a value is required
  std::function<void(Settings&, size_t chosen)> set;
  std::function<std::optional<size_t>(const Settings&)> get;
};

template <typename T>
Choice choice(const Field<T>& field, const std::vector<std::pair<std::string, T>>& values) {
  Choice made;
  for (const auto& [name, value] : values) made.choices.push_back(name);
  made.set = [field, values](Settings& settings, size_t chosen) { field.set(settings, values[chosen].second); };
  made.get = [field, values](const Settings& settings) -> std::optional<size_t> {
    for (size_t i = 0; i < values.size(); ++i) {
      if (field.get(settings) == values[i].second) return i;
    }
    return std::nullopt;
  };
  return made;
}

// Returns a Choice whose member of Settings stores the chosen name itself.
Choice choice(const Field<std::string>& field, const std::vector<std::string>& choices, const std::string& alone = "");

// A flag with its own parser. If the text is invalid, `read` throws UserError with the flag `name` (without dashes) and
// the expected value in the message. `show` returns an empty string if the member has no value.
struct Custom {
  std::function<void(CommandLine&, const std::string& name, const std::string& text)> read;
  std::function<std::string(const Settings&)> show;
};

// The equivalent key of ds_config.json.
struct FileKey {
  template <typename T>
  using Reader = io::Setting<T> (*)(const io::DsConfig&);

  enum class Conflict : uint8_t {
    kRefused,    // the flag must equal the key
    kFlagHolds,  // the flag overrides the key
  };

  std::string name;
  // std::monostate: the key affects several values, so a resolve_ function merges flag and key.
  std::variant<std::monostate, Reader<int64_t>, Reader<double>, Reader<bool>, Reader<std::vector<std::string>>> read =
      {};
  // Returns true if the file has the key's section, in which case a missing key has DeepSpeed's default. Null if the
  // key has no default.
  bool (*has_section)(const io::DsConfig&) = nullptr;
  Conflict conflict = Conflict::kRefused;
};

// The equivalent flag of the Hugging Face Trainer (transformers 5.23).
struct TrainersFlag {
  std::string name = {};           // empty: same name
  std::string default_value = {};  // for messages about different defaults; may be empty
};

// Row in the settings table and key in checkpoints, for flags that affect a run's results. When a run resumes, the
// flag's value is compared with the value in the checkpoint.
struct Recorded {
  enum class Section : uint8_t { kOptimizer, kSchedule, kBatch, kData };
  Section section = Section::kData;
  std::string label = {};  // name in the settings table; empty: no row
  std::string key = {};    // key in checkpoints; empty: not recorded
};

// Definition of a flag of `mpzero train`. The default is the initial value of the flag's member in Settings.
struct Flag {
  std::string name;
  std::variant<Integer, Unsigned, Real, Boolean, Text, Names, Choice, Custom> value;
  std::string help;               // description without the default
  std::string unit = {};          // placeholder in the help, e.g. STEPS or FILE
  std::string default_text = {};  // description of a default that is not a single value
  bool required = false;          // true: no default
  std::optional<FileKey> file = {};
  std::optional<TrainersFlag> trainer = {};
  std::optional<Recorded> recorded = {};

  // Returns true if `text` is the flag's name or its Trainer alias.
  bool is_named(const std::string& text) const;
  // Returns the flag's name, followed by its Trainer alias, if any.
  std::vector<std::string> names() const;
  bool is_boolean() const { return std::holds_alternative<Boolean>(value); }
  // Returns the value that the flag has if it is set without a value; empty if a value is required.
  std::string alone() const;

  // Parses and validates `text` and sets the member. Throws UserError with the flag `name` (without dashes) in the
  // message.
  void read(CommandLine& line, const std::string& name, const std::string& text) const;
  // Returns the member's value in command-line syntax; empty if there is no value.
  std::string show(const Settings& settings) const;
  // Returns the member's value as JSON; null if there is no value.
  nlohmann::ordered_json to_json(const Settings& settings) const;
};

struct FlagGroup {
  std::string title;
  std::vector<Flag> flags;
};

}  // namespace mpzero
