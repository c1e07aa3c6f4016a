#pragma once

#include <string>
#include <vector>

#include "app/flags/flag.hpp"

// The flags of `mpzero train`. Parsing, defaults, validation, help, the merge with ds_config.json, the settings table
// and the recorded settings are derived from this table.
namespace mpzero {

// Returns all flags, in the order of --help.
const std::vector<FlagGroup>& training_flags();

// Finds a flag by its name or its Trainer alias. Returns null if there is no such flag.
const Flag* find_flag(const std::string& name);
// Like find_flag(), but throws Failure if there is no such flag.
const Flag& flag_named(const std::string& name);

// Return the groups of flags. Each group is defined in its own file, except override_flags(), which is in
// model_flags.cpp.
FlagGroup model_flags();
FlagGroup override_flags();
FlagGroup data_flags();
FlagGroup optimization_flags();
FlagGroup loop_flags();
FlagGroup checkpoint_flags();

}  // namespace mpzero
