#pragma once

#include <string>

namespace mpzero {

// Output of `mpzero --version`: the versions of mpzero, its commit, and the libraries in this process.
std::string version_text();

}  // namespace mpzero
