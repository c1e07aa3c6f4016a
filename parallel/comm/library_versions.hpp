#pragma once

#include <string>

namespace mpzero::parallel {

// Versions of the libraries in this process.
std::string nccl_version();  // "2.28.9"; "none" in a build without GPU kernels
int nccl_version_code();     // 10000 * major + 100 * minor + patch; 0: unknown
std::string version_text(int nccl_version);
std::string mpi_version();   // "Open MPI v4.1.4"
int cuda_runtime_version();  // 1000 * major + 10 * minor

}  // namespace mpzero::parallel
