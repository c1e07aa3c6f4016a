#pragma once

#include <memory>
#include <optional>

#include "model/architecture/config.hpp"
#include "model/fp8/options.hpp"
#include "parallel/codes/weight_codec.hpp"

namespace mpzero {

// Casts the weights of a model's products in FP8 before they are gathered; its ranges are those products, in the order
// of LayerProduct. Null where weights are gathered in bf16: without FP8, with a scale for each row, whose codes
// forward and backward do not share, and in a model with adapters.
std::shared_ptr<const parallel::WeightCodec> weight_codec(const std::optional<model::Fp8Options>& options,
                                                          const model::ModelConfig& model);

}  // namespace mpzero
