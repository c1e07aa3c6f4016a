#include "model/kernels/cuda.hpp"

#include <ATen/cuda/CUDAContextLight.h>

namespace mpzero::model::cuda {

bool has_kernels(const at::Tensor& tensor) {
  return tensor.is_cuda() && (tensor.scalar_type() == at::kFloat || tensor.scalar_type() == at::kBFloat16);
}

int multiprocessor_count() { return at::cuda::getCurrentDeviceProperties()->multiProcessorCount; }

}  // namespace mpzero::model::cuda
