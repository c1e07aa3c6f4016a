#pragma once

#include <map>
#include <string>

namespace mpzero {

// Returns error messages, by flag name, for flags of other programs: different names of supported flags, flags of the
// Hugging Face Trainer, and flags of unsupported features (docs/limits.md).
const std::map<std::string, std::string>& unknown_flags();

// Maps a flag of a different program to the flag of `mpzero train`. Returns `name` if there is no equivalent.
std::string meant_name(const std::string& name);

}  // namespace mpzero
