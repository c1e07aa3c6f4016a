#include <cublasLt.h>
#include <cublas_api.h>
#include <nccl.h>

#include "parallel/comm/library_versions.hpp"

namespace mpzero::parallel {

int nccl_version_code() {
  int version = 0;
  return ncclGetVersion(&version) == ncclSuccess ? version : 0;
}

std::vector<LoadedLibrary> loaded_gpu_libraries() {
  return {{.name = "NCCL",
           .version = nccl_version_code(),
           .built_with = NCCL_VERSION_CODE,
           .file = file_of(reinterpret_cast<const void*>(&ncclGetVersion))},
          {.name = "cuBLASLt",
           .version = static_cast<int64_t>(cublasLtGetVersion()),
           .built_with = CUBLAS_VERSION,
           .file = file_of(reinterpret_cast<const void*>(&cublasLtGetVersion))}};
}

}  // namespace mpzero::parallel
