#pragma once

#include <string>
#include <vector>

namespace mpzero::plan {

// `mpzero plan --calibrate FILE [--device WHAT] [--calibrate_seconds N]`, without `plan`: measures this machine into
// the file and says what is in it. Returns EXIT_SUCCESS. Throws UserError.
int calibrate_command(const std::vector<std::string>& arguments);

// Whether the arguments ask for it.
bool asks_to_calibrate(const std::vector<std::string>& arguments);

}  // namespace mpzero::plan
