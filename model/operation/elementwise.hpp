#pragma once

#include <ATen/core/Tensor.h>

#include <cmath>

#include "model/operation/operation.hpp"

namespace mpzero::model {

// Records ATen operators that together perform `passes` reads or writes of tensors with the shape of x [..., C].
inline OperationScope elementwise(const at::Tensor& x, double passes) {
  return {"elementwise", [&] {
            const int64_t columns = x.size(-1);
            Operation operation = on_matrix(x.scalar_type(), x.numel() / columns, columns, passes);
            operation.launches = std::ceil(passes / 3);
            return operation;
          }};
}

}  // namespace mpzero::model
