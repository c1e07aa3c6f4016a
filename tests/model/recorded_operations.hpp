#pragma once

#include <c10/core/Device.h>

#include <string>
#include <vector>

#include "model/architecture/config.hpp"
#include "model/operations.hpp"

namespace mpzero::model {

// Runs all units of the model on the device, and compares what torch's observers of functions see with the lists of
// model/operations.hpp. A text for each unit that differs.
std::vector<std::string> unlisted_operations(const ModelConfig& config, at::Device device,
                                             const MicroBatchShape& shape);

}  // namespace mpzero::model
