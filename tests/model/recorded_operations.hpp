#pragma once

#include <c10/core/Device.h>

#include <optional>
#include <string>
#include <vector>

#include "model/architecture/config.hpp"
#include "model/fp8/options.hpp"
#include "model/operations.hpp"

namespace mpzero::model {

// Runs all units of the model on the device, and compares what torch's observers of functions see with the lists of
// model/operations.hpp. `fp8`: of the layers, the products that the first one has. A text for each unit that differs.
std::vector<std::string> unlisted_operations(const ModelConfig& config, at::Device device, const MicroBatchShape& shape,
                                             const std::optional<Fp8Options>& fp8 = {});

}  // namespace mpzero::model
