#pragma once

#include <string>

namespace mpzero {

// What `mpzero --version` prints: mpzero's version and commit, and the versions of the libraries in this process.
std::string version_text();

}  // namespace mpzero
