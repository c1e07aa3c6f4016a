#pragma once

#include <c10/core/ScalarType.h>

namespace mpzero::model {

// The dtype in which sums over `type` are accumulated.
inline at::ScalarType accumulate_type(at::ScalarType type) { return type == at::kDouble ? at::kDouble : at::kFloat; }

}  // namespace mpzero::model
