#pragma once

#include <memory>
#include <optional>

#include "model/architecture/config.hpp"
#include "model/fp8/options.hpp"
#include "parallel/codes/weight_codec.hpp"

namespace mpzero {

// Returns a codec that casts weights to FP8 before the all-gather. In each layer, the codec has one range per FP8
// matmul, in the order of LayerProduct. Returns null if weights are gathered in bf16: FP8 is disabled, scaling is
// rowwise (forward and backward then need different FP8 weights), or the model has adapters.
std::shared_ptr<const parallel::WeightCodec> weight_codec(const std::optional<model::Fp8Options>& options,
                                                          const model::ModelConfig& model);

}  // namespace mpzero
