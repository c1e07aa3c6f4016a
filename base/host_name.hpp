#pragma once

#include <string>

namespace mpzero {

// The name of this machine, as the kernel reports it.
std::string host_name();

}  // namespace mpzero
