#pragma once

#include <string>
#include <vector>

#include "app/run_config.hpp"

namespace mpzero {

// What decides the numbers of a run, one line each: its name, its value, and which key of the file, flag or default it
// comes from. Begins with a line that names the file. Complete once apply_epochs has been called.
std::vector<std::string> settings_table(const RunConfig& config, int world_size);

}  // namespace mpzero
