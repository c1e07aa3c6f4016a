#pragma once

#include <string>
#include <vector>

namespace mpzero {

// Returns the output of `mpzero train --help`: flags by group, with placeholders, defaults, keys of ds_config.json and
// Trainer aliases.
std::string command_line_help();

// Returns the name of the flag to explain, e.g. "seq_length" for `--help seq_length` or, at the end of `arguments`,
// `--help --seq_length`; empty if there is none.
std::string flag_after_help(const std::vector<std::string>& arguments);

// Returns the output of `mpzero train --help FLAG`. `name`: name of the flag without leading dashes; may be a flag of
// the Trainer or another program. Throws UserError if the flag is unknown.
std::string flag_help(const std::string& name);

// Returns the output of `mpzero train --help=json`: {"groups": [{"title", "flags": [...]}], "unknown": {flag: message},
// "ds_config": keys}. The keys of a flag are "name", "takes" (placeholder), "type" (integer, number, boolean, text,
// names or choice), "minimum", "maximum", "more_than", "less_than" and "choices" (if applicable), "alone" (true if a
// bare flag is allowed), "help", "required", and "default", "ds_config" (equivalent key) and "trainer" (equivalent
// Trainer flag), each of which may be null.
std::string command_line_help_json();

}  // namespace mpzero
