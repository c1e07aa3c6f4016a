#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/lora_config.hpp"
#include "base/parameter_spec.hpp"
#include "model/architecture/layer_layout.hpp"

namespace mpzero::model {

struct ModelConfig;

// LoRA adapter of one projection.
struct LoraAdapter {
  size_t weight;         // index of the projection among the layer's own parameters
  size_t a, b;           // indices in the layer's unit
  int64_t begin, count;  // range of the projection's columns in the matmul's output
};

// Adapters of each matmul of a layer, in the order of LayerProduct. In a layer's unit, the adapters follow the layer's
// own parameters: for each matmul, first the A matrices (which all have the same input), then the B matrices.
using LoraLayout = std::array<std::vector<LoraAdapter>, 4>;

LoraLayout lora_layout(const LoraConfig& lora, std::span<const LayerParameter> parameters);

// Appends the adapters to `unit`, which must already contain the layer's own parameters.
void append_adapters(const LoraConfig& lora, const LoraLayout& layout, UnitSpec& unit);

// Returns the valid target names, in the order of the layer's matmuls. Throws UserError with `source` if the
// architecture does not support adapters.
std::vector<std::string> lora_targets(const ModelConfig& config, std::string_view source);

}  // namespace mpzero::model
