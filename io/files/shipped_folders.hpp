#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace mpzero::io {

// Folders of files that ship with mpzero: configs/`name` in the current directory, then in the tree that contains the
// program (tree_of). They need not exist.
std::vector<std::filesystem::path> shipped_folders(const std::string& name);

// The tree that contains a program and mpzero's pyproject.toml: an installation (bin/mpzero) or a checkout
// (build/bin/mpzero, build/asan/bin/mpzero). If none is found, assumes build/bin/mpzero.
std::filesystem::path tree_of(const std::filesystem::path& program);

}  // namespace mpzero::io
