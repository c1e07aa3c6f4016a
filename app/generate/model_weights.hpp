#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <vector>

#include "base/parameter_source.hpp"
#include "model/architecture/config.hpp"

namespace mpzero {

// Weights by unit and parameter, in the order of model_units(config). A unit's weights are views of one flat buffer.
using ModelWeights = std::vector<std::vector<at::Tensor>>;

// Reads the weights unit by unit and copies them to `device` as `type` (fp32, or bf16 rounded from fp32). Calls
// `on_read` with the number of parameters read so far. Reads `source` from several threads.
ModelWeights read_weights(const model::ModelConfig& config, const ParameterSource& source, at::Device device,
                          at::ScalarType type, const std::function<void(int64_t)>& on_read);

}  // namespace mpzero
