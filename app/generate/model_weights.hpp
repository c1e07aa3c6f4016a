#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <vector>

#include "base/parameter_source.hpp"
#include "model/architecture/config.hpp"

namespace mpzero {

// The weights of one process, by unit of model_units(config) and in its order, each unit in one flat buffer.
using ModelWeights = std::vector<std::vector<at::Tensor>>;

// Reads the weights as `type` (fp32 or bf16, rounded from the source's fp32) onto the device, unit by unit. `on_read`
// receives the number of parameters read so far. `source` is read from several threads.
ModelWeights read_weights(const model::ModelConfig& config, const ParameterSource& source, at::Device device,
                          at::ScalarType type, const std::function<void(int64_t)>& on_read);

}  // namespace mpzero
