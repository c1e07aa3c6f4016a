#pragma once

#include <map>
#include <string>
#include <vector>

#include "app/flags/settings.hpp"

namespace mpzero {

// The parsed flags of `mpzero train`; a flag that was not given has its default.
struct CommandLine : Settings {
  bool help = false;
  // Maps given flags to the names that the user wrote: {"grad_clip", "max_grad_norm"}.
  std::map<std::string, std::string> given;

  // Whether the flag was given, under any of its names. Throws Failure if no such flag exists.
  bool gives(const std::string& flag) const;
  // The name that the user wrote, or the flag's own.
  std::string name_of(const std::string& flag) const;

  bool operator==(const CommandLine&) const = default;
};

constexpr const char* kListedByHelp = "mpzero train --help lists them all";

// Throws UserError for an argument that is not a flag. `of_command`, `help`: see parse_command_line.
[[noreturn]] void refuse_flag(const std::string& argument, const std::vector<std::string>& of_command = {},
                              const std::string& help = kListedByHelp);

// Parses the flags after `mpzero train`: `--flag value` or `--flag=value`; booleans accept true or false, and a bare
// boolean flag means true. A flag may be given under two of its names if the values are the same. Throws UserError
// naming each wrong flag: unknown (with the nearest known one), repeated, without a value, out of range. `of_command`:
// flags of another command that also accepts those of `mpzero train` and has already parsed its own; they are suggested
// for similar unknown flags. `help`: the hint on how to list all flags.
CommandLine parse_command_line(const std::vector<std::string>& arguments,
                               const std::vector<std::string>& of_command = {},
                               const std::string& help = kListedByHelp);

}  // namespace mpzero
