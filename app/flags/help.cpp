#include "app/flags/help.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "app/flags/options.hpp"
#include "app/flags/training_flags.hpp"
#include "app/flags/unknown_flags.hpp"
#include "base/command_line/arguments.hpp"
#include "base/command_line/command_flags.hpp"
#include "io/ds_config/keys.hpp"

namespace mpzero {
namespace {

using nlohmann::ordered_json;

// Width of the column before the explanation.
constexpr size_t kColumn = 28;

const char* type_of(const Integer&) { return "integer"; }
const char* type_of(const Unsigned&) { return "integer"; }
const char* type_of(const Real&) { return "number"; }
const char* type_of(const Boolean&) { return "boolean"; }
const char* type_of(const Text&) { return "text"; }
const char* type_of(const Names&) { return "names"; }
const char* type_of(const Choice&) { return "choice"; }
const char* type_of(const Custom&) { return "text"; }

std::string placeholder(const Flag& flag) {
  if (!flag.unit.empty()) return flag.unit;
  const std::string type = std::visit([](const auto& value) { return type_of(value); }, flag.value);
  if (type == "integer") return "N";
  if (type == "number") return "X";
  if (type == "boolean") return "BOOL";
  return type == "names" ? "NAMES" : "VALUE";
}

// Formats numbers as users write them: 5e-5 instead of 5e-05.
std::string default_of(const Flag& flag) {
  if (!flag.default_text.empty()) return flag.default_text;
  std::string text = flag.show(Settings{});
  if (!std::holds_alternative<Real>(flag.value)) return text;
  if (const size_t exponent = text.find("e-0"); exponent != std::string::npos) text.erase(exponent + 2, 1);
  return text;
}

// Example: "AdamW's beta1 (default: 0.9) [ds_config: optimizer.params.betas[0]; Trainer: --adam_beta1]"
std::string explain(const Flag& flag) {
  std::vector<std::string> parts;
  if (!flag.help.empty()) parts.push_back(flag.help);
  if (flag.required) {
    parts.emplace_back("(required)");
  } else if (const std::string value = default_of(flag); !value.empty()) {
    parts.push_back(fmt::format("(default: {})", value));
  }
  std::vector<std::string> elsewhere;
  if (flag.file) elsewhere.push_back("ds_config: " + flag.file->name);
  if (flag.trainer && !flag.trainer->name.empty()) elsewhere.push_back("Trainer: --" + flag.trainer->name);
  if (!elsewhere.empty()) parts.push_back(fmt::format("[{}]", fmt::join(elsewhere, "; ")));
  return fmt::to_string(fmt::join(parts, " "));
}

ordered_json limits_of(const Integer& value) {
  ordered_json limits = {{"minimum", value.minimum}};
  if (value.maximum != std::numeric_limits<int64_t>::max()) limits["maximum"] = value.maximum;
  return limits;
}
ordered_json limits_of(const Unsigned&) { return {{"minimum", 0}}; }
ordered_json limits_of(const Real& value) {
  ordered_json limits = {{value.may_be_minimum ? "minimum" : "more_than", value.minimum}};
  if (std::isfinite(value.limit)) limits["less_than"] = value.limit;
  return limits;
}
ordered_json limits_of(const Choice& value) { return {{"choices", value.choices}}; }
template <typename Other>
ordered_json limits_of(const Other&) {
  return ordered_json::object();
}

ordered_json to_json(const Flag& flag) {
  ordered_json json = {{"name", flag.name},
                       {"takes", placeholder(flag)},
                       {"type", std::visit([](const auto& value) { return type_of(value); }, flag.value)}};
  json.update(std::visit([](const auto& value) { return limits_of(value); }, flag.value));
  json["alone"] = !flag.alone().empty();
  json["help"] = flag.help;
  json["required"] = flag.required;
  const std::string value = default_of(flag);
  json["default"] = flag.required || value.empty() ? ordered_json() : ordered_json(value);
  json["ds_config"] = flag.file ? ordered_json(flag.file->name) : ordered_json();
  json["trainer"] =
      flag.trainer ? ordered_json(flag.trainer->name.empty() ? flag.name : flag.trainer->name) : ordered_json();
  return json;
}

}  // namespace

std::string command_line_help() {
  std::string text = "Usage: mpzero train --train_data FILE [--flag value | --flag=value ...]\n";
  HelpRows aliases;
  for (const FlagGroup& group : training_flags()) {
    HelpRows rows;
    for (const Flag& flag : group.flags) {
      for (const std::string& name : flag.names()) {
        const std::string shown = fmt::format("--{} {}", name, placeholder(flag));
        name == flag.name ? rows.emplace_back(shown, explain(flag))
                          : aliases.emplace_back(shown, "alias of --" + flag.name);
      }
    }
    text += fmt::format("\n{}:\n{}", group.title, in_columns(rows, kColumn));
  }
  text += "\nAliases from the Hugging Face Trainer:\n" + in_columns(aliases, kColumn);
  const HelpRows other = {{"--help [FLAG|json]",
                           "show this help (also -h), explain one flag (--help FLAG), or print all flags as JSON "
                           "(--help=json)"}};
  return text + "\nOther:\n" + in_columns(other, kColumn);
}

std::string flag_after_help(const std::vector<std::string>& arguments) {
  const auto help = std::ranges::find_if(arguments, asks_for_help);
  if (arguments.end() - help < 2) return "";
  const std::string& next = help[1];
  const size_t begin = next.find_first_not_of('-');
  // --help in the middle of a command line does not refer to the next flag.
  if (begin == std::string::npos || (begin > 0 && help + 2 != arguments.end())) return "";
  const std::string name = next.substr(begin, next.find('=') - begin);
  return asks_for_help("--" + name) || asks_for_help(next) ? "" : name;
}

std::string flag_help(const std::string& name) {
  const Flag* const flag = find_flag(meant_name(name));
  if (flag == nullptr) refuse_flag("--" + name);
  return in_columns({{fmt::format("--{} {}", flag->name, placeholder(*flag)), explain(*flag)}}, 0);
}

std::string command_line_help_json() {
  ordered_json groups = ordered_json::array();
  for (const FlagGroup& group : training_flags()) {
    ordered_json flags = ordered_json::array();
    for (const Flag& flag : group.flags) flags.push_back(to_json(flag));
    groups.push_back({{"title", group.title}, {"flags", flags}});
  }
  return ordered_json({{"groups", groups}, {"unknown", unknown_flags()}, {"ds_config", io::ds_config_keys()}}).dump(2) +
         "\n";
}

}  // namespace mpzero
