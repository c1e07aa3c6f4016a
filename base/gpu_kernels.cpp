#include "base/gpu_kernels.hpp"

#include "base/error.hpp"

namespace mpzero {

bool built_with_gpu_kernels() { return MPZERO_GPU_KERNELS != 0; }

std::string no_gpu_kernels() {
  return "this build has no GPU kernels because the build machine had no GPU; rebuild on a GPU machine, or run "
         "MPZERO_GPU_ARCHITECTURES=all ./train-singlenode.sh --build-only";
}

void throw_no_gpu_kernels() { throw UserError(no_gpu_kernels() + "; or pass --device cpu"); }

}  // namespace mpzero
