#include "parallel/comm/library_versions.hpp"

#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <fmt/format.h>
#include <mpi.h>

#include "base/error.hpp"
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
  // The rest describes the builder and the build date.
  return all.substr(0, all.find_first_of(",\n"));
}

// Defined in nccl_version.cpp or nccl_no_cuda.cpp.
std::vector<LoadedLibrary> loaded_gpu_libraries();

std::string file_of(const void* function) {
  Dl_info place{};
  return ::dladdr(function, &place) != 0 && place.dli_fname != nullptr ? place.dli_fname : "";
}

std::vector<LoadedLibrary> loaded_libraries() {
  std::vector<LoadedLibrary> libraries = loaded_gpu_libraries();
  libraries.push_back({.name = "CUDA runtime",
                       .version = cuda_runtime_version(),
                       .built_with = CUDART_VERSION,
                       .file = file_of(reinterpret_cast<const void*>(&cudaRuntimeGetVersion))});
  return libraries;
}

void check_versions(const std::vector<LoadedLibrary>& libraries) {
  for (const LoadedLibrary& library : libraries) {
    if (library.version == library.built_with) continue;
    throw_user_error(
        "{} is {} version {}, but mpzero was built with {}; remove this library from LD_LIBRARY_PATH and LD_PRELOAD, "
        "or rebuild mpzero",
        library.file, library.name, library.version, library.built_with);
  }
}

int cuda_runtime_version() {
  int version = 0;
  return cudaRuntimeGetVersion(&version) == cudaSuccess ? version : 0;
}

}  // namespace mpzero::parallel
