#include "base/command_line/command_flags.hpp"

#include <algorithm>
#include <set>
#include <sstream>

#include "base/words.hpp"

namespace mpzero {

FlagValue choice(std::string& member, const std::vector<std::string>& choices) {
  return {.read = [&member, choices](const std::string& flag,
                                     const std::string& text) { member = choices[parse_choice(flag, text, choices)]; },
          .default_text = member};
}

std::vector<std::string> read_flags(const std::vector<std::string>& arguments, const std::vector<CommandFlag>& flags) {
  const auto find = [&](const std::string& flag) {
    return std::find_if(flags.begin(), flags.end(), [&](const CommandFlag& one) {
      return flag == "--" + one.name || (!one.letter.empty() && flag == "-" + one.letter);
    });
  };
  const auto takes = [&](const std::string& flag) {
    const auto known = find(flag);
    return known == flags.end() ? Takes::kUnknown : known->value.takes;
  };
  std::set<std::string> seen;
  std::vector<std::string> others;
  for (const Argument& argument : split_arguments(arguments, takes)) {
    if (argument.takes == Takes::kUnknown) {
      others.push_back(argument.text);
      continue;
    }
    argument.check_value();
    const CommandFlag& flag = *find(argument.flag);
    if (!seen.insert(flag.name).second) throw_user_error("--{} is given twice; keep one of the two.", flag.name);
    flag.value.read(flag.name, argument.value.value_or(""));
  }
  return others;
}

std::vector<std::string> read_flags_of(const std::string& command, const std::vector<std::string>& arguments,
                                       const std::vector<CommandFlag>& flags, size_t most) {
  std::vector<std::string> others = read_flags(arguments, flags);
  for (size_t i = 0; i < others.size(); ++i) {
    const bool is_flag = others[i].starts_with("-") && others[i] != "-";
    if (!is_flag && i < most) continue;
    const std::string name = is_flag ? others[i].substr(0, others[i].find('=')) : fmt::format("\"{}\"", others[i]);
    if (const auto nearest = nearest_flag(others[i], flags)) {
      throw_user_error("{} is not a flag of {}; did you mean --{}?", name, command, *nearest);
    }
    throw_user_error("{0} is not {1} of {2}; see `{2} --help`.", name, is_flag ? "a flag" : "a valid argument",
                     command);
  }
  return others;
}

std::optional<std::string> nearest_flag(const std::string& argument, const std::vector<CommandFlag>& flags) {
  std::vector<std::string> names;
  for (const CommandFlag& flag : flags) names.push_back(flag.name);
  const size_t begin = std::min(argument.find_first_not_of('-'), argument.size());
  // "-p" abbreviates the first flag that begins with p.
  if (argument.size() == 2 && begin == 1) {
    const auto found = std::ranges::find_if(names, [&](const std::string& name) { return name[0] == argument[1]; });
    if (found != names.end()) return *found;
  }
  return nearest_name(argument.substr(begin, argument.find('=') - begin), names);
}

std::string in_columns(const HelpRows& rows, size_t column) {
  constexpr size_t kLineLength = 80;
  std::string text;
  for (const auto& [name, explanation] : rows) {
    std::string line = "  " + name;
    const size_t begin = column > 0 ? column : line.size() + 2;
    bool empty = true;
    const auto next_line = [&] {
      text += line + "\n";
      line.clear();
      empty = true;
    };
    if (line.size() + 2 > begin) next_line();
    std::istringstream words(explanation);
    for (std::string word; words >> word;) {
      if (!empty && line.size() + 1 + word.size() > kLineLength) next_line();
      line += empty ? std::string(begin - line.size(), ' ') + word : " " + word;
      empty = false;
    }
    next_line();
  }
  return text;
}

std::string describe_flags(const std::vector<CommandFlag>& flags, HelpRows before) {
  HelpRows rows = std::move(before);
  for (const auto& [name, value, unit, help, letter] : flags) {
    if (help.empty()) continue;
    const std::string shown =
        (letter.empty() ? "" : "-" + letter + ", ") + "--" + name + (unit.empty() ? "" : " " + unit);
    rows.emplace_back(shown,
                      value.default_text.empty() ? help : fmt::format("{} (default: {})", help, value.default_text));
  }
  size_t column = 0;
  for (const auto& [name, explanation] : rows) column = std::max(column, name.size() + 4);
  return in_columns(rows, column);
}

}  // namespace mpzero
