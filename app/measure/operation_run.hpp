#pragma once

#include <c10/core/Device.h>

#include "app/measure/stopwatch.hpp"
#include "model/matmuls.hpp"
#include "model/operation/operation.hpp"

namespace mpzero::measure {

// One call of an operation as the model runs it, on random operands, of which there are `sets`. Products are tuned by
// `matmuls`, which must live as long, those that accumulate too. Whether products in FP8 add up fast, `matmuls`
// decides.
Body run_of(const model::Operation& operation, model::Matmuls& matmuls, at::Device device, int sets);

// The number of sets of its operands that have left the last cache when they are used again.
int sets_for(const model::Operation& operation);

}  // namespace mpzero::measure
