#include <string>
#include <vector>

#include "base/error.hpp"
#include "base/gpu_kernels.hpp"
#include "parallel/comm/library_versions.hpp"
#include "tests/catch.hpp"

using namespace mpzero;
using namespace mpzero::parallel;

TEST_CASE("the loaded libraries have the versions at build time, and their files are known") {
  const std::vector<LoadedLibrary> libraries = loaded_libraries();
  CHECK(libraries.size() == (built_with_gpu_kernels() ? 3 : 1));
  for (const LoadedLibrary& library : libraries) {
    CHECK(library.version > 0);
    CHECK_THAT(library.file, Catch::Contains(".so"));
  }
  CHECK_NOTHROW(check_versions(libraries));
}

TEST_CASE("a library with a different version is refused with its file") {
  const LoadedLibrary right{
      .name = "CUDA runtime", .version = 13000, .built_with = 13000, .file = "/venv/libcudart.so"};
  const LoadedLibrary foreign{
      .name = "NCCL", .version = 22703, .built_with = 22809, .file = "/usr/local/cuda/libnccl.so"};
  CHECK_THROWS_AS(check_versions({right, foreign}), UserError);
  CHECK_THROWS_WITH(check_versions({right, foreign}), Catch::Contains(foreign.file) && Catch::Contains("22809"));
}
