#pragma once

#include <functional>
#include <string>
#include <vector>

#include "app/flags/options.hpp"

namespace mpzero {

// A flag of `mpzero train`.
struct Flag {
  // Reads the value into its field of the command line. Throws UserError naming the flag (`name`, without dashes) and
  // what it takes.
  using Setter = std::function<void(CommandLine&, const std::string& name, const std::string& value)>;

  std::string name;
  std::string value_name;  // in the help
  std::string help;        // with the default
  Setter set;
  bool boolean = false;                   // may stand without a value, which means true
  std::vector<std::string> aliases = {};  // other names of it: the Hugging Face Trainer's

  bool is_named(const std::string& word) const;
};

struct FlagGroup {
  std::string title;
  std::vector<Flag> flags;
};

// All of them, as --help shows them.
std::vector<FlagGroup> training_flags();

}  // namespace mpzero
