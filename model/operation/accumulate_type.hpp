#pragma once

#include <c10/core/ScalarType.h>

namespace mpzero::model {

// Returns the dtype for accumulating values of `type`.
inline at::ScalarType accumulate_type(at::ScalarType type) { return type == at::kDouble ? at::kDouble : at::kFloat; }

}  // namespace mpzero::model
