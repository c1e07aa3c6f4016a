#pragma once

#include <map>
#include <string>

namespace mpzero {

// Error messages, by flag name, for flags of other programs that `mpzero train` lacks: other names of its flags, flags
// of the Hugging Face Trainer, and flags of unsupported features (docs/limits.md).
const std::map<std::string, std::string>& unknown_flags();

// Maps another program's name of a flag to that of mpzero train; else returns `name`.
std::string meant_name(const std::string& name);

}  // namespace mpzero
