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

// One adapter of a layer.
struct LoraAdapter {
  size_t weight;         // the projection's position among the layer's own parameters
  size_t a, b;           // positions in the layer's unit
  int64_t begin, count;  // columns of the result of the product that the projection is in
};

// The adapters of each product of a layer, in the order of LayerProduct. In a layer's unit they follow the layer's own
// parameters: of each product the matrices A, which share their input, then the matrices B.
using LoraLayout = std::array<std::vector<LoraAdapter>, 4>;

LoraLayout lora_layout(const LoraConfig& lora, std::span<const LayerParameter> parameters);

// Appends them to a layer's unit, which has the layer's own parameters.
void append_adapters(const LoraConfig& lora, const LoraLayout& layout, UnitSpec& unit);

// The names that can be targets, in the order of the layer's products. Throws UserError, naming `source`, if the model
// has no layers of such products.
std::vector<std::string> lora_targets(const ModelConfig& config, std::string_view source);

}  // namespace mpzero::model
