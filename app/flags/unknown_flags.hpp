#pragma once

#include <map>
#include <string>

namespace mpzero {

// The sentence that refuses each flag that `mpzero train` lacks but users of other programs give, by its name: other
// names of its flags, the Hugging Face Trainer's, and those of features that mpzero does not have (docs/limits.md).
const std::map<std::string, std::string>& unknown_flags();

// The flag of mpzero train that `name` is another name of; else `name` itself.
std::string meant_name(const std::string& name);

}  // namespace mpzero
