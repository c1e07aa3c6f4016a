#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace mpzero::io {

// Returns the candidate folders for files that ship with mpzero: configs/`name` in the current directory and in the
// installation or checkout (tree_of()). The folders may not exist.
std::vector<std::filesystem::path> shipped_folders(const std::string& name);

// Returns the root folder of an installation (bin/mpzero) or a checkout (build/bin/mpzero, build/asan/bin/mpzero),
// which contains pyproject.toml. If no such folder exists, assumes that `program` is build/bin/mpzero in a checkout.
std::filesystem::path tree_of(const std::filesystem::path& program);

}  // namespace mpzero::io
