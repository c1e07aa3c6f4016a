#include "bench/operations.hpp"

#include <ATen/ops/randn.h>

#include <algorithm>
#include <utility>

#include "app/measure/operation_run.hpp"

namespace mpzero::bench {

using model::Operation;
using model::OperationKind;

at::Tensor random(at::IntArrayRef shape) {
  return at::randn(shape, at::TensorOptions().dtype(at::kBFloat16).device(at::kCUDA));
}

void measure_operations(const std::string& part, const std::vector<Operation>& operations, double times,
                        model::Matmuls& matmuls, Roofline& roofline) {
  // Measure identical operations only once, e.g. chunks of the LM head.
  std::vector<std::pair<std::string, int64_t>> names;
  std::vector<Operation> distinct;
  for (const Operation& operation : operations) {
    const std::string name = describe(operation);
    const auto found = std::ranges::find(names, name, &std::pair<std::string, int64_t>::first);
    if (found != names.end()) {
      ++found->second;
      continue;
    }
    names.emplace_back(name, 1);
    distinct.push_back(operation);
  }
  for (size_t i = 0; i < distinct.size(); ++i) {
    const Operation& operation = distinct[i];
    const auto& [name, count] = names[i];
    const int sets = measure::sets_for(operation);
    const Body run = measure::run_of(operation, matmuls, at::kCUDA, sets);
    const double calls = times * static_cast<double>(count);
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
