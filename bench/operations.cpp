#include "bench/operations.hpp"

#include <ATen/ops/randn.h>

namespace mpzero::bench {

at::Tensor random(at::IntArrayRef shape) {
  return at::randn(shape, at::TensorOptions().dtype(at::kBFloat16).device(at::kCUDA));
}

void add_operations(const std::string& part, const std::vector<measure::OperationTime>& operations, double times,
                    Roofline& roofline) {
  for (const measure::OperationTime& one : operations) {
    const model::Operation& operation = one.operation;
    const std::string name = describe(operation);
    const double calls = times * one.calls, seconds = one.timing.seconds;
    if (operation.matmul) {
      roofline.matmul(part, name, calls, *operation.matmul, operation.adds, seconds);
    } else if (operation.flops > 0) {
      roofline.compute(part, name, calls, operation.flops, seconds);
    } else {
      roofline.memory(part, name, calls, operation.bytes, seconds);
    }
  }
}

}  // namespace mpzero::bench
