#pragma once

#include <functional>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/command_line/arguments.hpp"

// Flags of all commands except `mpzero train` (app/flags).
namespace mpzero {

struct FlagValue {
  std::function<void(const std::string& flag, const std::string& text)> read;  // `flag`: without leading dashes
  std::string default_text = {};                                               // for the help; may be empty
  Takes takes = Takes::kValue;
};

struct CommandFlag {
  std::string name;  // without leading dashes
  FlagValue value;
  std::string unit = {};    // placeholder in the help, e.g. FILE
  std::string help = {};    // description without the default; if empty, the help omits the flag
  std::string letter = {};  // short name: "t" for -t
};

// The following functions return flags that store their value in `member`, which may be a std::optional. The initial
// value of `member` is the flag's default.

template <typename T>
std::string default_text(const T& member) {
  if constexpr (requires { member.has_value(); })
    return "";
  else
    return fmt::format("{}", member);
}

// Returns a flag without a value, which sets `member` to true.
inline FlagValue switch_on(bool& member) {
  return {.read = [&member](const auto&, const auto&) { member = true; }, .takes = Takes::kNothing};
}

template <typename T>
FlagValue text(T& member) {
  return {.read = [&member](const auto&, const std::string& text) { member = text; }};
}

template <typename T>
FlagValue integer(T& member, int64_t minimum, int64_t maximum = std::numeric_limits<int64_t>::max()) {
  const auto read = [=, &member](const std::string& flag, const std::string& text) {
    if constexpr (std::is_same_v<T, uint64_t>) {
      member = parse_number<uint64_t>(flag, text, "an integer, 0 or more");
    } else {
      member = parse_integer(flag, text, minimum, maximum);
    }
  };
  return {.read = read, .default_text = default_text(member)};
}

// Returns a flag for a number in [minimum, limit).
template <typename T>
FlagValue real(T& member, double minimum, double limit = std::numeric_limits<double>::infinity()) {
  return {.read = [=, &member](const std::string& flag,
                               const std::string& text) { member = parse_real(flag, text, minimum, limit); },
          .default_text = default_text(member)};
}

FlagValue choice(std::string& member, const std::vector<std::string>& choices);

// Parses the flags in `arguments`, and returns all other arguments as written. Throws UserError if a flag is repeated
// or its value is invalid.
std::vector<std::string> read_flags(const std::vector<std::string>& arguments, const std::vector<CommandFlag>& flags);

// Like read_flags(), but returns only positional arguments. Throws UserError for an unknown flag or more than `most`
// positional arguments. `command`: "mpzero generate".
std::vector<std::string> read_flags_of(const std::string& command, const std::vector<std::string>& arguments,
                                       const std::vector<CommandFlag>& flags, size_t most);

// Returns the flag most similar to `argument` (--name or --name=value); std::nullopt if no flag is similar.
std::optional<std::string> nearest_flag(const std::string& argument, const std::vector<CommandFlag>& flags);

using HelpRows = std::vector<std::pair<std::string, std::string>>;

// Formats names and explanations in two columns. The second column begins at `column` or, if `column` is 0, after the
// name. Lines are broken only between words.
std::string in_columns(const HelpRows& rows, size_t column);

// Returns the help text: the rows `before`, followed by the flags.
std::string describe_flags(const std::vector<CommandFlag>& flags, HelpRows before = {});

}  // namespace mpzero
