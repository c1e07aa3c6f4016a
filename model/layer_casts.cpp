#include "model/layer_casts.hpp"

#include <ATen/ops/zeros.h>

#include <algorithm>

#include "base/device/simulated.hpp"
#include "base/error.hpp"
#include "model/fp8/codes.hpp"

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
  // Frees the old cast first, so that the new cast reuses its memory.
  if (found != casts_.end()) casts_.erase(found);
  fp8::CastMatrix cast = fp8::cast(weight, fp8::Format::kE4m3, scaling, fp8::Forms::kBoth);
  const at::Tensor maxima = std::move(cast.maxima);
  return casts_.emplace(key, Kept{version, address, operand_of(std::move(cast)), maxima}).first->second;
}

at::Tensor CastWeights::maximum(const Key& key, uint64_t version, const at::Tensor& weight) {
  const std::lock_guard lock(mutex_);
  const auto found = maxima_.find(key);
  if (found == maxima_.end()) return {};
  const Kept& kept = found->second;
  return kept.version == version && kept.address == weight.const_data_ptr() ? kept.maxima : at::Tensor();
}

void CastWeights::keep_maximum(const Key& key, uint64_t version, const at::Tensor& weight, at::Tensor maximum) {
  const std::lock_guard lock(mutex_);
  maxima_[key] = {version, weight.const_data_ptr(), {}, std::move(maximum)};
}

at::Tensor LayerCasts::maximum(LayerProduct product, at::Device device) const {
  const bool reads = is_fp8(product) && recipe_.scaling == fp8::Scaling::kTensorwise && uses_gpu_kernels(device);
  return reads ? at::zeros({}, at::TensorOptions().dtype(at::kFloat).device(device)) : at::Tensor();
}

Operand LayerCasts::input(LayerProduct product, const at::Tensor& x, fp8::Forms forms, const at::Tensor& maximum,
                          at::Tensor* found) const {
  return make(OperandKind::kInput, product, x, fp8::Format::kE4m3, forms, maximum, found);
}

Operand LayerCasts::gradient(LayerProduct product, const at::Tensor& dy, const at::Tensor& maximum) const {
  return make(OperandKind::kGradient, product, dy, recipe_.gradients, fp8::Forms::kBoth, maximum);
}

Operand LayerCasts::weight(LayerProduct product, const at::Tensor& weight, fp8::Forms forms) const {
  if (weight.scalar_type() == fp8::scalar_type(fp8::Format::kE4m3)) return of_codes(product, weight, forms);
  if (!is_fp8(product) || kept_ == nullptr) {
    return make(OperandKind::kWeight, product, weight, fp8::Format::kE4m3, forms);
  }
  if (keeps_casts_) {
    CastWeights::Kept kept = kept_->get({layer_, product}, version_, weight, recipe_.scaling);
    if (watch_ != nullptr) watch_->see(layer_, product, OperandKind::kWeight, kept.maxima);
    return std::move(kept.operand);
  }
  const at::Tensor known = kept_->maximum({layer_, product}, version_, weight);
  at::Tensor found;
  Operand made = make(OperandKind::kWeight, product, weight, fp8::Format::kE4m3, forms, known, &found);
  if (found.defined() && !known.defined()) kept_->keep_maximum({layer_, product}, version_, weight, found);
  return made;
}

Operand LayerCasts::of_codes(LayerProduct product, const at::Tensor& codes, fp8::Forms forms) const {
  if (!is_fp8(product) || !scales_.defined()) {
    throw_failure("layer {}: the FP8 weight of {} has no scale", layer_, name(product));
  }
  const auto index = std::count(products_.begin(), products_.begin() + static_cast<std::ptrdiff_t>(product), true);
  const at::Tensor scale_inverse = scales_[1][index];
  // cuBLASLt requires this alignment. Only sizes that are not multiples of 16 violate it.
  constexpr uintptr_t kAlignment = 16;
  const bool aligned =
      !uses_gpu_kernels(codes.device()) || reinterpret_cast<uintptr_t>(codes.const_data_ptr()) % kAlignment == 0;
  fp8::Matrix rows, columns;
  if (has_rows(forms)) rows = {aligned ? codes : codes.clone(), scale_inverse};
  if (has_columns(forms)) columns = {fp8::transposed(codes), scale_inverse};
  if (watch_ != nullptr) watch_->see(layer_, product, OperandKind::kWeight, scales_[0][index]);
  return {std::move(rows), std::move(columns)};
}

Operand LayerCasts::make(OperandKind kind, LayerProduct product, const at::Tensor& x, fp8::Format format,
                         fp8::Forms forms, const at::Tensor& maximum, at::Tensor* found) const {
  if (!is_fp8(product)) return x;
  // Only weight gradients read the columns of inputs and gradients. Gradients of adapters read x itself.
  const bool beside = adapted_ && kind != OperandKind::kWeight;
  if (beside) {
    if (!fp8::has_rows(forms)) return x;
    forms = fp8::Forms::kRows;
  }
  fp8::CastMatrix cast = fp8::cast(x.contiguous(), format, recipe_.scaling, forms, maximum);
  if (found != nullptr && recipe_.scaling == fp8::Scaling::kTensorwise) *found = cast.maxima;
  // An input whose cast has no rows was already sampled in the forward pass.
  const bool is_input = kind == OperandKind::kInput;
  if (watch_ != nullptr && (!is_input || cast.rows.defined())) {
    watch_->see(layer_, product, kind, cast.maxima, is_input ? cast.rows : fp8::Matrix(), x);
  }
  if (beside) return {std::move(cast.rows), {}, x};
  return operand_of(std::move(cast));
}

}  // namespace mpzero::model
