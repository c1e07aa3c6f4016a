#pragma once

#include <string>

namespace mpzero {

// What `mpzero train --help` prints: flags in groups, with units, defaults, keys of ds_config.json and the Trainer's
// names.
std::string command_line_help();

// What `mpzero train --help FLAG` prints: the flag's entry. `name`: without dashes, also of the Trainer or of other
// programs. Throws UserError for an unknown one.
std::string flag_help(const std::string& name);

// What `mpzero train --help=json` prints: {"groups": [{"title", "flags": [...]}], "unknown": {flag: sentence}}. A flag
// has "name", "takes" (its unit, or N, X, BOOL, WHAT), "type" (integer, number, boolean, text, names or choice), its
// limits ("minimum", "more_than", "less_than", "choices"), "alone" (whether it may stand without a value), "help",
// "required", "default", and "ds_config" and "trainer": the key and the Trainer's flag that set the same. Without a
// default, a key or a Trainer's flag these are null.
std::string command_line_help_json();

}  // namespace mpzero
