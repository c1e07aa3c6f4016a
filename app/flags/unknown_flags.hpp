#pragma once

#include <map>
#include <string>

namespace mpzero {

// Returns error messages, by flag name, for flags of other programs: other names of supported flags, flags of the
// Hugging Face Trainer, and flags of unsupported features (docs/limits.md).
const std::map<std::string, std::string>& unknown_flags();

// Maps a flag of another program to the equivalent flag of `mpzero train`. Returns `name` if there is no equivalent
// flag.
std::string meant_name(const std::string& name);

}  // namespace mpzero
