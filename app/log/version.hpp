#pragma once

#include <string>

namespace mpzero {

// Returns the output of `mpzero --version`: the version and commit of mpzero, and the versions of the loaded libraries.
std::string version_text();

}  // namespace mpzero
