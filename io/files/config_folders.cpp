#include "io/files/config_folders.hpp"

namespace mpzero::io {
namespace {

namespace fs = std::filesystem;

// The tree that a program belongs to, which holds mpzero's pyproject.toml: the installed one (bin/mpzero), or the
// checkout (build/bin/mpzero, build/asan/bin/mpzero). Where none does, that of build/bin/mpzero.
fs::path tree_of(const fs::path& program) {
  const fs::path above = program.parent_path().parent_path();
  std::error_code ignored;
  for (const fs::path& tree : {above, above.parent_path(), above.parent_path().parent_path()}) {
    if (fs::exists(tree / "pyproject.toml", ignored)) return tree;
  }
  return above.parent_path();
}

}  // namespace

std::vector<fs::path> config_folders(const std::string& name) {
  std::vector<fs::path> folders{fs::current_path() / "configs" / name};
  std::error_code error;
  const fs::path program = fs::read_symlink("/proc/self/exe", error);
  if (!error) folders.push_back(tree_of(program) / "configs" / name);
  return folders;
}

}  // namespace mpzero::io
