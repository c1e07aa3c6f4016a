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
// of these flags. Throws UserError for a repeated flag or a missing value.
void read_command_flags(const std::vector<std::string>& arguments, const std::vector<CommandFlag>& flags,
                        const std::function<void(const std::string& argument)>& other);

// Extracts the flag's entry from a command's help text; empty if it has none.
std::string explain_flag(const std::string& help, const std::string& flag);

// The known flag most similar to `argument` (--name or --name=value); std::nullopt if none is.
std::optional<std::string> nearest_flag(const std::string& argument, const std::vector<CommandFlag>& flags);

}  // namespace mpzero
