#include "app/python_program.hpp"

#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "base/error.hpp"
#include "io/files/shipped_folders.hpp"

namespace mpzero {

void become_python_program(const std::string& name, const std::vector<std::string>& arguments) {
  namespace fs = std::filesystem;
  std::error_code error;
  const fs::path tree = io::tree_of(fs::read_symlink("/proc/self/exe", error));
  const fs::path program = tree / "app" / name;
  if (!fs::exists(program, error)) {
    throw_user_error("{} is missing: mpzero runs from its checkout, or from what cmake --install has made",
                     program.string());
  }
  // An environment is known by the path in argv[0].
  for (const std::string& python : {(tree / ".venv/bin/python").string(), std::string("python3")}) {
    std::vector<std::string> words = {python, "-X", "utf8", program.string()};
    words.insert(words.end(), arguments.begin(), arguments.end());
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    ::execvp(python.c_str(), argv.data());
  }
  throw_user_error("python3, which {} needs, cannot be started ({}): install it", program.string(),
                   std::strerror(errno));
}

}  // namespace mpzero
