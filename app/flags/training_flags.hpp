#pragma once

#include <string>
#include <vector>

#include "app/flags/flag.hpp"

// The table of the flags of `mpzero train`. Parsing, defaults, checks, help, the merge with ds_config.json, the table
// and the record of settings follow from a flag's row here; the code that uses the flag reads the member of Settings.
namespace mpzero {

// All of them, as --help shows them.
const std::vector<FlagGroup>& training_flags();

// The flag of that name, or of that name of the Trainer's; null: there is none.
const Flag* find_flag(const std::string& name);
// Throws Failure where there is none.
const Flag& flag_named(const std::string& name);

// Its groups, one file each; a group of flags that replace fields of the model belongs to the first.
FlagGroup model_flags();
FlagGroup override_flags();
FlagGroup data_flags();
FlagGroup optimization_flags();
FlagGroup loop_flags();
FlagGroup checkpoint_flags();

}  // namespace mpzero
