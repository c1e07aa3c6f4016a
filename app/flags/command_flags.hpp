#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace mpzero {

// A flag of a command other than `mpzero train`.
struct CommandFlag {
  std::string name;  // without dashes
  std::function<void(const std::string& value)> set;
  bool is_switch = false;  // takes no value
  bool may_be_empty = false;
};

// Parses `arguments`: --name value, --name=value or, for a switch, --name. `other` receives every argument that is none
// of these flags. Throws UserError for a flag that is given twice, or without its value.
void read_command_flags(const std::vector<std::string>& arguments, const std::vector<CommandFlag>& flags,
                        const std::function<void(const std::string& argument)>& other);

// The lines of a command's help that explain the flag; empty: none do.
std::string explain_flag(const std::string& help, const std::string& flag);

// The flag that `argument`, with dashes and perhaps a value, is nearly; std::nullopt: none.
std::optional<std::string> nearest_flag(const std::string& argument, const std::vector<CommandFlag>& flags);

}  // namespace mpzero
