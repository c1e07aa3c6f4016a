#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace mpzero::io {

// Where files lie that come with mpzero: configs/`name` of the folder that the program was started from, then of the
// tree that the program belongs to, installed or the checkout. They need not exist.
std::vector<std::filesystem::path> shipped_folders(const std::string& name);

// The tree that a program belongs to, which holds mpzero's pyproject.toml: the installed one (bin/mpzero), or the
// checkout (build/bin/mpzero, build/asan/bin/mpzero). Where none does, that of build/bin/mpzero.
std::filesystem::path tree_of(const std::filesystem::path& program);

}  // namespace mpzero::io
