#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace mpzero::parallel {

// Versions of the libraries in this process.
std::string nccl_version();  // "2.28.9"; "none" in a build without GPU kernels
int nccl_version_code();     // 10000 * major + 100 * minor + patch; 0: unknown
std::string version_text(int nccl_version);
std::string mpi_version();   // "Open MPI v4.1.4"
int cuda_runtime_version();  // 1000 * major + 10 * minor

// A shared library that the dynamic loader has resolved for this process.
struct LoadedLibrary {
  std::string name;
  int64_t version = 0;     // reported by the library
  int64_t built_with = 0;  // version in the header at build time
  std::string file;
};
// Returns the CUDA runtime and, in a build with GPU kernels, NCCL and cuBLASLt.
std::vector<LoadedLibrary> loaded_libraries();
// Throws UserError with the file of the first library whose version differs from its version at build time. Kernels and
// plans are specific to the version at build time, and an older library may lack functions.
void check_versions(const std::vector<LoadedLibrary>& libraries);

// Returns the file that defines `function`, or an empty string if unknown.
std::string file_of(const void* function);

}  // namespace mpzero::parallel
