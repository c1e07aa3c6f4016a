#include "model/architecture/layer_layout.hpp"

#include "base/error.hpp"

namespace mpzero::model {

LayerLayout::LayerLayout(std::span<const LayerParameter> parameters) {
  index_.values.fill(kAbsent);
  for (size_t i = 0; i < parameters.size(); ++i) index_[parameters[i].role] = i;
  for (const LayerRole role : {LayerRole::kQuery, LayerRole::kOutput, LayerRole::kGate, LayerRole::kDown}) {
    if (!has(role)) throw_failure("LayerLayout: the architecture lacks a weight for role {}", static_cast<int>(role));
  }
  const auto follows = [&](LayerRole first, LayerRole second) { return (*this)[second] == (*this)[first] + 1; };
  const bool fused_qkv = !has(LayerRole::kKey) && !has(LayerRole::kValue), fused_gate_up = !has(LayerRole::kUp);
  const bool qkv = follows(LayerRole::kQuery, LayerRole::kKey) && follows(LayerRole::kKey, LayerRole::kValue);
  if (!(fused_qkv || qkv) || !(fused_gate_up || follows(LayerRole::kGate, LayerRole::kUp))) {
    throw_failure("LayerLayout: query, key and value weights, and gate and up weights, must be adjacent in a unit");
  }
  const bool biased = has(LayerRole::kQueryBias) || has(LayerRole::kKeyBias) || has(LayerRole::kValueBias);
  if (biased && (!follows(LayerRole::kQueryBias, LayerRole::kKeyBias) ||
                 !follows(LayerRole::kKeyBias, LayerRole::kValueBias) || !has(LayerRole::kQueryBias))) {
    throw_failure("LayerLayout: query, key and value biases must be adjacent in a unit");
  }
  for (const auto& [query, key] : kQueryKeyNorms) {
    if (has(query) != has(key)) throw_failure("LayerLayout: a layer must have both query and key norms, or neither");
  }
}

}  // namespace mpzero::model
