#pragma once

#include <string>
#include <vector>

#include "app/flags/flag.hpp"

// The table of the flags of `mpzero train`. Parsing, defaults, checks, help, the merge with ds_config.json, the
// settings table and the settings record are derived from a flag's entry; code that uses a flag reads its member of
// Settings.
namespace mpzero {

// All flags, in the order of --help.
const std::vector<FlagGroup>& training_flags();

// Finds a flag by its own name or its Trainer alias; null if there is none.
const Flag* find_flag(const std::string& name);
// Throws Failure if there is none.
const Flag& flag_named(const std::string& name);

// The groups of the table, one file each; override_flags() is in the file of model_flags().
FlagGroup model_flags();
FlagGroup override_flags();
FlagGroup data_flags();
FlagGroup optimization_flags();
FlagGroup loop_flags();
FlagGroup checkpoint_flags();

}  // namespace mpzero
