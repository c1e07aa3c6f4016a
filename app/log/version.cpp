#include "app/log/version.hpp"

#include <fmt/format.h>
#include <torch/headeronly/version.h>

#include "base/gpu_kernels.hpp"
#include "parallel/comm/library_versions.hpp"

namespace mpzero {

std::string version_text() {
  const int cuda = parallel::cuda_runtime_version();
  return fmt::format(
      "mpzero {} (commit {})\n"
      "torch {}, CUDA {}.{}, NCCL {}, {}\n"
      "GPU kernels: {}\n",
      MPZERO_VERSION, MPZERO_COMMIT, TORCH_VERSION, cuda / 1000, cuda % 1000 / 10, parallel::nccl_version(),
      parallel::mpi_version(), built_with_gpu_kernels() ? MPZERO_KERNELS_FOR : "none");
}

}  // namespace mpzero
