#pragma once

#include <memory>
#include <optional>

#include "model/architecture/config.hpp"
#include "model/fp8/options.hpp"
#include "parallel/codes/weight_codec.hpp"

namespace mpzero {

// Casts the weights of a model's FP8 products before they are gathered; its ranges are those products, in the order of
// LayerProduct. Null if weights are gathered in bf16: without FP8, with a scale per row (forward and backward then need
// different FP8 weights), and in a model with adapters.
std::shared_ptr<const parallel::WeightCodec> weight_codec(const std::optional<model::Fp8Options>& options,
                                                          const model::ModelConfig& model);

}  // namespace mpzero
