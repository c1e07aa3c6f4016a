#pragma once

#include <string>

namespace mpzero {

// The name of this machine, as the kernel has it.
std::string host_name();

}  // namespace mpzero
