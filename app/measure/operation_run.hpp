#pragma once

#include <c10/core/Device.h>

#include "app/measure/stopwatch.hpp"
#include "model/matmuls.hpp"
#include "model/operation/operation.hpp"

namespace mpzero::measure {

// One call of an operation as the model runs it, on `sets` sets of random operands. `matmuls` tunes matmuls, including
// accumulating ones, and decides on fast FP8 accumulation. It must outlive the result.
Body run_of(const model::Operation& operation, model::Matmuls& matmuls, at::Device device, int sets);

// Number of operand sets for which a set has left the last-level cache when it is reused.
int sets_for(const model::Operation& operation);

}  // namespace mpzero::measure
