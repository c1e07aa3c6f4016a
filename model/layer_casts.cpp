#include "model/layer_casts.hpp"

#include <ATen/ops/zeros.h>
namespace mpzero::model {
namespace {

Operand operand_of(fp8::CastMatrix cast) { return {std::move(cast.rows), std::move(cast.columns)}; }

}  // namespace

CastWeights::Kept CastWeights::get(const Key& key, uint64_t version, const at::Tensor& weight, fp8::Scaling scaling) {
  const std::lock_guard lock(mutex_);
  auto found = casts_.find(key);
  const void* address = weight.const_data_ptr();
  if (found != casts_.end() && found->second.version == version && found->second.address == address) {
    return found->second;
  }
  // The old one goes first, so that the new one takes its memory.
  if (found != casts_.end()) casts_.erase(found);
  fp8::CastMatrix cast = fp8::cast(weight, fp8::Format::kE4m3, scaling, fp8::Forms::kBoth);
  const at::Tensor maxima = std::move(cast.maxima);
  return casts_.emplace(key, Kept{version, address, operand_of(std::move(cast)), maxima}).first->second;
}

at::Tensor CastWeights::maximum(const Key& key, uint64_t version, const at::Tensor& weight) {
  const std::lock_guard lock(mutex_);
  Kept& kept = maxima_[key];
  const void* address = weight.const_data_ptr();
  if (!kept.maxima.defined() || kept.version != version || kept.address != address) {
    kept = {version, address, {}, fp8::maximum(weight)};
  }
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
