#include "parallel/comm/library_versions.hpp"

#include <cuda_runtime_api.h>
#include <fmt/format.h>
#include <mpi.h>

#include "base/gpu_kernels.hpp"

namespace mpzero::parallel {

std::string version_text(int nccl_version) {
  return fmt::format("{}.{}.{}", nccl_version / 10000, nccl_version / 100 % 100, nccl_version % 100);
}

std::string nccl_version() {
  const int version = nccl_version_code();
  if (!built_with_gpu_kernels()) return "none";
  return version == 0 ? "unknown" : version_text(version);
}

std::string mpi_version() {
  char text[MPI_MAX_LIBRARY_VERSION_STRING];
  int length = 0;
  MPI_Get_library_version(text, &length);
  const std::string all(text, static_cast<size_t>(length));
  // The rest of the text is the builder and the date.
  return all.substr(0, all.find_first_of(",\n"));
}

int cuda_runtime_version() {
  int version = 0;
  return cudaRuntimeGetVersion(&version) == cudaSuccess ? version : 0;
}

}  // namespace mpzero::parallel
