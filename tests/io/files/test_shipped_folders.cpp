#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "io/files/shipped_folders.hpp"
#include "tests/catch.hpp"

namespace mpzero::io {

namespace fs = std::filesystem;

TEST_CASE("shipped files are searched in the current directory, then in the program's tree") {
  const auto folders = shipped_folders("models");
  REQUIRE(folders.size() == 2);
  CHECK(folders[0] == fs::current_path() / "configs/models");
  // This test's program lies in a build folder of the checkout.
  CHECK(fs::exists(folders[1] / "qwen3_0_6b.json"));
}

TEST_CASE("the root of a program's tree contains pyproject.toml") {
  const fs::path tree = fs::temp_directory_path() / ("mpzero_tree_" + std::to_string(getpid()));
  fs::create_directories(tree / "build/asan/bin");
  CHECK(tree_of(tree / "build/bin/mpzero") == tree);
  std::ofstream(tree / "pyproject.toml") << "";
  for (const char* program : {"bin/mpzero", "build/bin/mpzero", "build/asan/bin/mpzero"}) {
    CHECK(tree_of(tree / program) == tree);
  }
  fs::remove_all(tree);
}

}  // namespace mpzero::io
