#include "app/flags/command_flags.hpp"

#include <algorithm>
#include <set>
#include <sstream>

#include "base/error.hpp"
#include "base/words.hpp"

namespace mpzero {

void read_command_flags(const std::vector<std::string>& arguments, const std::vector<CommandFlag>& flags,
                        const std::function<void(const std::string& argument)>& other) {
  std::set<std::string> seen;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string& argument = arguments[i];
    const size_t equals = argument.find('=');
    const std::string name = argument.substr(0, equals);
    const auto flag =
        std::find_if(flags.begin(), flags.end(), [&](const auto& one) { return name == "--" + one.name; });
    if (flag == flags.end()) {
      other(argument);
      continue;
    }
    if (!seen.insert(name).second) throw_user_error("{} is given twice; keep one of the two.", name);
    std::optional<std::string> value;
    if (equals != std::string::npos) value = argument.substr(equals + 1);
    if (flag->is_switch) {
      if (value) throw_user_error("{} takes no value; remove the value.", name);
    } else if (!value && i + 1 < arguments.size() && !arguments[i + 1].starts_with("--")) {
      value = arguments[++i];
    }
    if (!flag->is_switch && (!value || (value->empty() && !flag->may_be_empty))) {
      throw_user_error("{} needs a value; if it begins with --, write {}=VALUE.", name, name);
    }
    flag->set(value.value_or(""));
  }
}

std::string explain_flag(const std::string& help, const std::string& flag) {
  std::istringstream lines(help);
  std::string found;
  for (std::string line; std::getline(lines, line);) {
    const bool begins = line.starts_with("  --");
    if (!found.empty() && (begins || line.empty())) break;
    const bool is_flag = line.starts_with("  --" + flag) && line.find_first_of(" =", 4) == 4 + flag.size();
    if (is_flag || !found.empty()) found += line + "\n";
  }
  return found;
}

std::optional<std::string> nearest_flag(const std::string& argument, const std::vector<CommandFlag>& flags) {
  std::vector<std::string> names;
  for (const CommandFlag& flag : flags) names.push_back(flag.name);
  const size_t begin = std::min(argument.find_first_not_of('-'), argument.size());
  return nearest_name(argument.substr(begin, argument.find('=') - begin), names);
}

}  // namespace mpzero
