#pragma once

#include <string>

namespace mpzero {

// The output of `mpzero train --help`: flags in groups, with units, defaults, keys of ds_config.json and the Trainer's
// names.
std::string command_line_help();

// The output of `mpzero train --help FLAG`: the flag's entry. `name`: without dashes; may be an alias from the Trainer
// or another program. Throws UserError if the flag is unknown.
std::string flag_help(const std::string& name);

// The output of `mpzero train --help=json`: {"groups": [{"title", "flags": [...]}], "unknown": {flag: sentence},
// "ds_config": keys}. A flag has "name", "takes" (its unit, or N, X, BOOL, NAMES, VALUE), "type" (integer, number,
// boolean, text, names or choice), its limits ("minimum", "maximum", "more_than", "less_than", "choices"), "alone"
// (whether a bare flag is allowed), "help", "required", and "default", "ds_config" (equivalent key) and "trainer"
// (equivalent Trainer flag), which are null if there is none.
std::string command_line_help_json();

}  // namespace mpzero
