#include "app/flags/flag.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <sstream>

#include "base/command_line/arguments.hpp"
#include "base/error.hpp"

namespace mpzero {
namespace {

// Accepts the same case-insensitive words as the Trainer's parser.
bool parse_boolean(const std::string& flag, const std::string& text) {
  std::string word = text;
  std::transform(word.begin(), word.end(), word.begin(), [](unsigned char c) { return std::tolower(c); });
  const auto is_one_of = [&](std::initializer_list<const char*> choices) {
    return std::find(choices.begin(), choices.end(), word) != choices.end();
  };
  if (is_one_of({"true", "t", "yes", "y", "1"})) return true;
  if (is_one_of({"false", "f", "no", "n", "0"})) return false;
  throw_user_error("--{} must be true or false, not \"{}\".", flag, text);
}

std::vector<std::string> parse_names(const std::string& flag, const std::string& text, const std::string& remark) {
  std::vector<std::string> names;
  std::istringstream items(text + ",");
  for (std::string item; std::getline(items, item, ',');) {
    item.erase(0, item.find_first_not_of(' '));
    item.erase(item.find_last_not_of(' ') + 1);
    if (item.empty()) throw_user_error("--{} {} contains an empty name{}.", flag, text, remark);
    names.push_back(item);
  }
  return names;
}

struct Read {
  CommandLine& line;
  const std::string& flag;
  const std::string& text;

  void operator()(const Integer& value) const {
    value.field.set(line, parse_integer(flag, text, value.minimum, value.maximum));
  }
  void operator()(const Unsigned& value) const {
    value.field.set(line, parse_number<uint64_t>(flag, text, "an integer, 0 or more"));
  }
  void operator()(const Real& value) const {
    const double number = parse_real(flag, text, value.minimum, value.limit);
    if (!value.may_be_minimum && number == value.minimum) {
      throw_user_error("--{} {} is out of range; it must be greater than {}.", flag, text, value.minimum);
    }
    value.field.set(line, number);
  }
  void operator()(const Boolean& value) const { value.field.set(line, parse_boolean(flag, text)); }
  void operator()(const Text& value) const { value.field.set(line, text); }
  void operator()(const Names& value) const { value.field.set(line, parse_names(flag, text, value.remark)); }
  void operator()(const Choice& value) const { value.set(line, parse_choice(flag, text, value.choices)); }
  void operator()(const Custom& value) const { value.read(line, flag, text); }
};

}  // namespace

Choice choice(const Field<std::string>& field, const std::vector<std::string>& choices, const std::string& alone) {
  std::vector<std::pair<std::string, std::string>> values;
  for (const std::string& name : choices) values.emplace_back(name, name);
  Choice made = choice(field, values);
  made.alone = alone;
  return made;
}

std::string Flag::alone() const {
  if (std::holds_alternative<Boolean>(value)) return "true";
  const Choice* choice = std::get_if<Choice>(&value);
  return choice != nullptr ? choice->alone : "";
}

bool Flag::is_named(const std::string& text) const {
  const std::vector<std::string> all = names();
  return std::find(all.begin(), all.end(), text) != all.end();
}

std::vector<std::string> Flag::names() const {
  std::vector<std::string> all{name};
  if (trainer && !trainer->name.empty()) all.push_back(trainer->name);
  return all;
}

void Flag::read(CommandLine& line, const std::string& name, const std::string& text) const {
  std::visit(Read{line, name, text}, value);
}

nlohmann::ordered_json Flag::to_json(const Settings& settings) const {
  return std::visit(
      [&](const auto& kind) -> nlohmann::ordered_json {
        if constexpr (requires { kind.choices; }) {
          const auto chosen = kind.get(settings);
          return chosen ? nlohmann::ordered_json(kind.choices[*chosen]) : nlohmann::ordered_json();
        } else if constexpr (requires { kind.field; }) {
          const auto given = kind.field.get(settings);
          if (!given) return {};
          if constexpr (requires { given->empty(); }) {
            if (given->empty()) return {};
          }
          return *given;
        } else {
          const std::string shown = kind.show(settings);
          return shown.empty() ? nlohmann::ordered_json() : nlohmann::ordered_json(shown);
        }
      },
      value);
}

std::string Flag::show(const Settings& settings) const {
  const nlohmann::ordered_json shown = to_json(settings);
  if (shown.is_null()) return "";
  if (shown.is_string()) return shown.get<std::string>();
  if (shown.is_array()) return fmt::to_string(fmt::join(shown.get<std::vector<std::string>>(), ","));
  // Same format as in messages: 5e-05, and 1 for 1.0.
  if (shown.is_number_float()) return fmt::to_string(shown.get<double>());
  return shown.dump();
}

}  // namespace mpzero
