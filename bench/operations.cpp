#include "bench/operations.hpp"

#include <ATen/ops/randn.h>

#include "app/measure/operation_run.hpp"

namespace mpzero::bench {

using model::Operation;
using model::OperationKind;

at::Tensor random(at::IntArrayRef shape) {
  return at::randn(shape, at::TensorOptions().dtype(at::kBFloat16).device(at::kCUDA));
}

void measure_operations(const std::string& part, const std::vector<Operation>& operations, double times,
                        model::Matmuls& matmuls, Roofline& roofline) {
  for (const Operation& operation : operations) {
    const int sets = measure::sets_for(operation);
    const Body run = measure::run_of(operation, matmuls, at::kCUDA, sets);
    const std::string name(operation.name);
    const double calls = times * static_cast<double>(operation.calls);
    switch (operation.kind) {
      case OperationKind::kMatmul:
        roofline.matmul(part, name, calls, operation.matmul, operation.adds, sets, run);
        break;
      case OperationKind::kAttentionForward:
      case OperationKind::kAttentionBackward:
        roofline.compute(part, name, calls, operation.flops(), sets, run);
        break;
      default:
        roofline.memory(part, name, calls, operation.bytes(), sets, run);
    }
  }
}

}  // namespace mpzero::bench
