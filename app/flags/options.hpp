#pragma once

#include <map>
#include <string>
#include <vector>

#include "app/flags/settings.hpp"

namespace mpzero {

// The parsed flags of `mpzero train`. Unset flags have their default values.
struct CommandLine : Settings {
  bool help = false;
  // Flags on the command line, mapped to the names as written: {"grad_clip", "max_grad_norm"}.
  std::map<std::string, std::string> given;

  // Returns true if the flag was set, under any of its names. Throws Failure if no such flag exists.
  bool gives(const std::string& flag) const;
  // Returns the flag's name as written on the command line, or the flag's own name if the flag was not set.
  std::string name_of(const std::string& flag) const;

  bool operator==(const CommandLine&) const = default;
};

constexpr const char* kListedByHelp = "mpzero train --help lists all flags";

// Throws UserError for an argument that is not a flag. `of_command`, `help`: see parse_command_line().
[[noreturn]] void refuse_flag(const std::string& argument, const std::vector<std::string>& of_command = {},
                              const std::string& help = kListedByHelp);

// Parses the flags of `mpzero train` in the form `--flag value` or `--flag=value`. A Boolean flag without a value is
// true. A flag may be set under two names if the values are equal. Throws one UserError that lists all invalid flags:
// unknown (with the most similar flag), repeated, without a value, or out of range. `of_command`: flags of a command
// that also accepts the flags of `mpzero train`; used only as suggestions for unknown flags. `help`: hint on how to
// list all flags.
CommandLine parse_command_line(const std::vector<std::string>& arguments,
                               const std::vector<std::string>& of_command = {},
                               const std::string& help = kListedByHelp);

}  // namespace mpzero
