#include "model/architecture/lora.hpp"

#include <algorithm>
#include <string_view>

#include "base/error.hpp"
#include "base/parameter_spec.hpp"
#include "model/architecture/architectures.hpp"

namespace mpzero::model {
namespace {

constexpr std::string_view kWeight = ".weight";

// Weights that each matmul of a layer reads as one matrix. Roles that the layer lacks are skipped.
const std::array<std::vector<LayerRole>, 4> kProducts{{{LayerRole::kQuery, LayerRole::kKey, LayerRole::kValue},
                                                       {LayerRole::kOutput},
                                                       {LayerRole::kGate, LayerRole::kUp},
                                                       {LayerRole::kDown}}};

// Returns "q_proj" for "self_attn.q_proj.weight".
std::string projection_of(std::string_view name) {
  name.remove_suffix(kWeight.size());
  return std::string(name.substr(name.rfind('.') + 1));
}

}  // namespace

LoraLayout lora_layout(const LoraConfig& lora, std::span<const LayerParameter> parameters) {
  const LayerLayout roles(parameters);
  LoraLayout layout;
  size_t next = parameters.size();
  for (size_t product = 0; product < layout.size(); ++product) {
    std::vector<LoraAdapter>& adapters = layout[product];
    int64_t column = 0;
    for (const LayerRole role : kProducts[product]) {
      if (!roles.has(role)) continue;
      const LayerParameter& parameter = parameters[roles[role]];
      const int64_t columns = parameter.shape.front();
      if (std::ranges::find(lora.targets, projection_of(parameter.name)) != lora.targets.end()) {
        adapters.push_back({.weight = roles[role], .a = next++, .b = 0, .begin = column, .count = columns});
      }
      column += columns;
    }
    for (LoraAdapter& adapter : adapters) adapter.b = next++;
  }
  return layout;
}

void append_adapters(const LoraConfig& lora, const LoraLayout& layout, UnitSpec& unit) {
  for (const std::vector<LoraAdapter>& adapters : layout)
    unit.parameters.resize(unit.parameters.size() + 2 * adapters.size());
  for (const std::vector<LoraAdapter>& adapters : layout) {
    for (const LoraAdapter& adapter : adapters) {
      const ParameterSpec& weight = unit.parameters[adapter.weight];
      const std::string projection = weight.name.substr(0, weight.name.size() - kWeight.size());
      unit.parameters[adapter.a] = {projection + kLoraA, {lora.r, weight.shape[1]}};
      unit.parameters[adapter.b] = {projection + kLoraB, {weight.shape[0], lora.r}};
    }
  }
}

std::vector<std::string> lora_targets(const ModelConfig& config, std::string_view source) {
  const Architecture& architecture = find_architecture(config.model_type, source);
  if (architecture.layer_parameters == nullptr) {
    throw_user_error("{}: model_type \"{}\" does not support LoRA adapters; train all weights.", source,
                     config.model_type);
  }
  const std::vector<LayerParameter> parameters = architecture.layer_parameters(config);
  const LayerLayout roles(parameters);
  std::vector<std::string> names;
  for (const std::vector<LayerRole>& product : kProducts) {
    for (const LayerRole role : product) {
      if (roles.has(role)) names.push_back(projection_of(parameters[roles[role]].name));
    }
  }
  return names;
}

}  // namespace mpzero::model
