#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace mpzero {

// A flag of a command other than `mpzero train`.
struct CommandFlag {
  std::string name;  // without leading dashes
  std::function<void(const std::string& value)> set;
  bool is_switch = false;  // accepts no value
  bool may_be_empty = false;
};

// Parses flags of the form --name value, --name=value or, for a switch, --name. Passes all other arguments to `other`.
// Throws UserError if a flag is repeated or its value is missing.
void read_command_flags(const std::vector<std::string>& arguments, const std::vector<CommandFlag>& flags,
                        const std::function<void(const std::string& argument)>& other);

// Returns the flag's entry in a command's help text; empty if there is none.
std::string explain_flag(const std::string& help, const std::string& flag);

// Returns the flag most similar to `argument` (--name or --name=value); std::nullopt if no flag is similar.
std::optional<std::string> nearest_flag(const std::string& argument, const std::vector<CommandFlag>& flags);

}  // namespace mpzero
