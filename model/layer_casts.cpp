#include "model/layer_casts.hpp"

#include <ATen/ops/zeros.h>
#include <fmt/format.h>

#include "base/error.hpp"

namespace mpzero::model {
namespace {

// Whether `pattern` is one or more neighbouring components of `name`.
bool names(const std::string& pattern, const std::string& name) {
  return fmt::format(".{}.", name).find(fmt::format(".{}.", pattern)) != std::string::npos;
}

Operand operand_of(fp8::CastMatrix cast) { return {std::move(cast.rows), std::move(cast.columns)}; }

}  // namespace

std::vector<LayerRole> roles_of(LayerProduct product) {
  using enum LayerRole;
  switch (product) {
    case LayerProduct::kQkv:
      return {kQuery, kKey, kValue};
    case LayerProduct::kOutput:
      return {kOutput};
    case LayerProduct::kGateUp:
      return {kGate, kUp};
    case LayerProduct::kDown:
      break;
  }
  return {kDown};
}

std::vector<Fp8Products> fp8_products(const Fp8Options& options, const std::vector<UnitSpec>& layers,
                                      const LayerLayout& layout) {
  std::vector<Fp8Products> products(layers.size());
  for (Fp8Products& all : products) all.fill(true);
  for (const std::string& pattern : options.filter_fqns) {
    bool found = false;
    for (size_t layer = 0; layer < layers.size(); ++layer) {
      const bool by_place = (pattern == "first" && layer == 0) || (pattern == "last" && layer + 1 == layers.size());
      for (const LayerProduct product : kLayerProducts) {
        bool named = by_place;
        for (const LayerRole role : roles_of(product)) {
          named = named || names(pattern, layers[layer].parameters[layout[role]].name);
        }
        if (!named) continue;
        products[layer][static_cast<size_t>(product)] = false;
        found = true;
      }
    }
    if (!found) {
      throw_user_error(
          "fp8.filter_fqns names \"{}\", which no matrix product of a layer has; use first, last, or components of a "
          "name such as {}.",
          pattern, layers.front().parameters[layout[LayerRole::kDown]].name);
    }
  }
  return products;
}

CastWeights::Kept CastWeights::get(const Key& key, uint64_t version, const at::Tensor& weight, fp8::Scaling scaling) {
  const std::lock_guard lock(mutex_);
  auto found = casts_.find(key);
  if (found != casts_.end() && found->second.version == version) return found->second;
  // The old one goes first, so that the new one takes its memory.
  if (found != casts_.end()) casts_.erase(found);
  fp8::CastMatrix cast = fp8::cast(weight, fp8::Format::kE4m3, scaling, fp8::Forms::kBoth);
  const at::Tensor maxima = std::move(cast.maxima);
  return casts_.emplace(key, Kept{version, operand_of(std::move(cast)), maxima}).first->second;
}

at::Tensor CastWeights::maximum(const Key& key, uint64_t version, const at::Tensor& weight) {
  const std::lock_guard lock(mutex_);
  Kept& kept = maxima_[key];
  if (!kept.maxima.defined() || kept.version != version) kept = {version, {}, fp8::maximum(weight)};
  return kept.maxima;
}

at::Tensor LayerCasts::maximum(LayerProduct product, at::Device device) const {
  const bool reads = is_fp8(product) && recipe_.scaling == fp8::Scaling::kTensorwise && device.is_cuda();
  return reads ? at::zeros({}, at::TensorOptions().dtype(at::kFloat).device(device)) : at::Tensor();
}

at::Tensor LayerCasts::maximum_of(LayerProduct product, const at::Tensor& x) const {
  return is_fp8(product) && recipe_.scaling == fp8::Scaling::kTensorwise ? fp8::maximum(x.contiguous()) : at::Tensor();
}

Operand LayerCasts::input(LayerProduct product, const at::Tensor& x, fp8::Forms forms,
                          const at::Tensor& maximum) const {
  return make(OperandKind::kInput, product, x, fp8::Format::kE4m3, forms, maximum);
}

Operand LayerCasts::gradient(LayerProduct product, const at::Tensor& dy, const at::Tensor& maximum) const {
  return make(OperandKind::kGradient, product, dy, recipe_.gradients, fp8::Forms::kBoth, maximum);
}

Operand LayerCasts::weight(LayerProduct product, const at::Tensor& weight, fp8::Forms forms) const {
  if (!is_fp8(product) || kept_ == nullptr) {
    return make(OperandKind::kWeight, product, weight, fp8::Format::kE4m3, forms);
  }
  if (keeps_casts_) {
    CastWeights::Kept kept = kept_->get({layer_, product}, version_, weight, recipe_.scaling);
    if (watch_ != nullptr) watch_->see(layer_, product, OperandKind::kWeight, kept.maxima);
    return std::move(kept.operand);
  }
  const bool by_tensor = recipe_.scaling == fp8::Scaling::kTensorwise;
  return make(OperandKind::kWeight, product, weight, fp8::Format::kE4m3, forms,
              by_tensor ? kept_->maximum({layer_, product}, version_, weight) : at::Tensor());
}

Operand LayerCasts::make(OperandKind kind, LayerProduct product, const at::Tensor& x, fp8::Format format,
                         fp8::Forms forms, const at::Tensor& maximum) const {
  if (!is_fp8(product)) return x;
  fp8::CastMatrix cast = fp8::cast(x.contiguous(), format, recipe_.scaling, forms, maximum);
  // An input without rows is one that forward has cast already.
  const bool is_input = kind == OperandKind::kInput;
  if (watch_ != nullptr && (!is_input || cast.rows.defined())) {
    watch_->see(layer_, product, kind, cast.maxima, is_input ? cast.rows : fp8::Matrix());
  }
  return operand_of(std::move(cast));
}

}  // namespace mpzero::model
