#include "parallel/comm/communicator.hpp"

#include <ATen/core/Tensor.h>
#include <ATen/ops/zeros.h>

namespace mpzero::parallel {

at::Tensor Communicator::buffer(int64_t numel, const at::TensorOptions& options) { return at::zeros({numel}, options); }

}  // namespace mpzero::parallel
