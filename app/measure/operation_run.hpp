#pragma once

#include <c10/core/Device.h>

#include "app/measure/stopwatch.hpp"
#include "model/matmuls.hpp"
#include "model/operation/operation.hpp"

namespace mpzero::measure {

// Returns a function that calls an operation as the model does, on `sets` sets of random operands. `matmuls` tunes
// matmuls, selects FP8 accumulation, and must outlive the function.
Body run_of(const model::Operation& operation, model::Matmuls& matmuls, at::Device device, int sets);

// Returns the number of operand sets required to evict a set from the last-level cache before reuse.
int sets_for(const model::Operation& operation);

}  // namespace mpzero::measure
