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

// How a flag's value reaches the member of Settings that keeps it.
template <typename T>
struct Field {
  void (*set)(Settings&, T);
  std::optional<T> (*get)(const Settings&);  // nothing where the member is an optional without a value
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

// The member that these pointers lead to: field<&Settings::optimizer, &OptimizerConfig::lr>.
template <auto... members>
inline constexpr auto field = make_field<members...>();

// What a flag takes, and the check of it.

struct Integer {
  Field<int64_t> field;
  int64_t minimum = 0;
  int64_t maximum = std::numeric_limits<int64_t>::max();
};

struct Unsigned {
  Field<uint64_t> field;
};

// Finite.
struct Real {
  Field<double> field;
  double minimum = 0;
  bool may_be_minimum = true;                              // else it is more
  double limit = std::numeric_limits<double>::infinity();  // it is less
};

// May be given without a value, which means true.
struct Boolean {
  Field<bool> field;
};

struct Text {
  Field<std::string> field;
};

// Words with commas between them. `remark` ends the sentence about an empty one.
struct Names {
  Field<std::vector<std::string>> field;
  std::string remark;
};

// One of several names, each of which stands for a value of the member.
struct Choice {
  std::vector<std::string> choices;
  std::string alone = {};  // what the flag means without a value; empty: it needs one
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

// The same for a member that holds the name itself. `alone`: see Choice.
Choice choice(const Field<std::string>& field, const std::vector<std::string>& choices, const std::string& alone = "");

// What none of the others reads. `read` throws UserError naming the flag (`name`, without dashes) and what it takes;
// `show` gives nothing where the flag was not given.
struct Custom {
  std::function<void(CommandLine&, const std::string& name, const std::string& text)> read;
  std::function<std::string(const Settings&)> show;
};

// The key of ds_config.json that sets the same.
struct FileKey {
  template <typename T>
  using Reader = io::Setting<T> (*)(const io::DsConfig&);

  enum class Conflict : uint8_t {
    kRefused,    // flag and key must have the same value
    kFlagHolds,  // the flag replaces the key
  };

  std::string name;
  // None: the key means more than one value, and a resolve_ function brings the two together.
  std::variant<std::monostate, Reader<int64_t>, Reader<double>, Reader<bool>, Reader<std::vector<std::string>>> read =
      {};
  // Whether the file has the section in which a missing key has DeepSpeed's default; none: the key has no default.
  bool (*has_section)(const io::DsConfig&) = nullptr;
  Conflict conflict = Conflict::kRefused;
};

// The flag of the Hugging Face Trainer (transformers 5.23) that sets the same.
struct TrainersFlag {
  std::string name = {};           // empty: the same name
  std::string default_value = {};  // for messages that compare it with mpzero's; may be empty
};

// What of a flag decides the numbers of a run: its line in the table of settings, and its key in a checkpoint's record,
// by which a resumed run tells what has changed.
struct Recorded {
  enum class Section : uint8_t { kOptimizer, kSchedule, kBatch, kData };
  Section section = Section::kData;
  std::string label = {};  // empty: the table has no line for it
  std::string key = {};    // empty: any value gives the same numbers
};

// A flag of `mpzero train`: the one place that says all about it. Its default is its member's initial value.
struct Flag {
  std::string name;
  std::variant<Integer, Unsigned, Real, Boolean, Text, Names, Choice, Custom> value;
  std::string help;               // what it means, without its default
  std::string unit = {};          // in capitals, as the help shows what the flag takes: STEPS, FILE
  std::string default_text = {};  // where the default is no single value
  bool required = false;          // has no default
  std::optional<FileKey> file = {};
  std::optional<TrainersFlag> trainer = {};
  std::optional<Recorded> recorded = {};

  // Whether `text` is the flag's name or the Trainer's.
  bool is_named(const std::string& text) const;
  // All names, its own first.
  std::vector<std::string> names() const;
  bool is_boolean() const { return std::holds_alternative<Boolean>(value); }
  // What it means without a value; empty: it needs one.
  std::string alone() const;

  // Reads and checks a value and sets the member. Throws UserError naming the flag (`name`, without dashes).
  void read(CommandLine& line, const std::string& name, const std::string& text) const;
  // The member's value as a user writes it; empty: there is none.
  std::string show(const Settings& settings) const;
  // The same as a JSON value; null: there is none.
  nlohmann::ordered_json to_json(const Settings& settings) const;
};

struct FlagGroup {
  std::string title;
  std::vector<Flag> flags;
};

}  // namespace mpzero
