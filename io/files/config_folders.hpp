#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace mpzero::io {

// configs/`name` of the folder that mpzero was started from, then of the program's tree.
std::vector<std::filesystem::path> config_folders(const std::string& name);

}  // namespace mpzero::io
