#pragma once

#include <map>
#include <string>
#include <vector>

#include "app/flags/settings.hpp"

namespace mpzero {

// The flags of `mpzero train` as they were given; a flag that was not has its default.
struct CommandLine : Settings {
  bool help = false;
  // The flags that were given, by their own names, and the names under which they were: {"grad_clip", "max_grad_norm"}.
  std::map<std::string, std::string> given;

  // Whether the flag was given, under any of its names. Throws Failure where there is no such flag.
  bool gives(const std::string& flag) const;
  // The name under which the flag was given, or its own.
  std::string name_of(const std::string& flag) const;

  bool operator==(const CommandLine&) const = default;
};

constexpr const char* kListedByHelp = "mpzero train --help lists them all";

// Throws UserError about an argument that is no flag. `of_command`, `help`: see below.
[[noreturn]] void refuse_flag(const std::string& argument, const std::vector<std::string>& of_command = {},
                              const std::string& help = kListedByHelp);

// Parses the flags after `mpzero train`: `--flag value` or `--flag=value`; booleans take true or false, and a bare
// boolean flag means true. A flag may be given under two of its names if the values are the same. Throws UserError
// naming each wrong flag: unknown (with the nearest known one), repeated, without a value, out of range.
// `of_command`: flags of another command, which takes those of `mpzero train` too and has read its own; unknown ones
// may have been meant for them. `help`: where all flags are listed.
CommandLine parse_command_line(const std::vector<std::string>& arguments,
                               const std::vector<std::string>& of_command = {},
                               const std::string& help = kListedByHelp);

}  // namespace mpzero
