#include "model/rope_table.hpp"

#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/outer.h>
#include <ATen/ops/pow.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <variant>

#include "base/device/simulated.hpp"

namespace mpzero::model {

namespace {

at::Tensor scaled(const at::Tensor& frequencies, const Llama3RopeScaling& scaling) {
  const double original = static_cast<double>(scaling.original_max_position_embeddings);
  const double low_wavelength = original / scaling.low_freq_factor;
  const double high_wavelength = original / scaling.high_freq_factor;
  const at::Tensor wavelengths = frequencies.reciprocal().mul_(2.0 * std::numbers::pi);
  // 0 at the low-frequency end of the interpolated band, 1 at the high-frequency end.
  const at::Tensor blend = wavelengths.reciprocal()
                               .mul_(original)
                               .sub_(scaling.low_freq_factor)
                               .div_(scaling.high_freq_factor - scaling.low_freq_factor);
  const at::Tensor stretched = frequencies.div(scaling.factor);
  const at::Tensor blended = stretched.mul(blend.neg().add_(1.0)).add_(frequencies.mul(blend));
  return at::where(wavelengths.gt(low_wavelength), stretched,
                   at::where(wavelengths.lt(high_wavelength), frequencies, blended));
}

at::Tensor scaled(const at::Tensor& frequencies, const YarnRopeScaling& scaling, const ModelConfig& config) {
  const double dims = static_cast<double>(config.head_dim);
  // Returns the dimension that completes `turns` rotations within original_max_position_embeddings tokens.
  const auto dimension = [&](double turns) {
    const double original = static_cast<double>(scaling.original_max_position_embeddings);
    return dims * std::log(original / (turns * 2.0 * std::numbers::pi)) / (2.0 * std::log(config.rope_theta));
  };
  double low = dimension(scaling.beta_fast), high = dimension(scaling.beta_slow);
  if (scaling.truncate) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, dims - 1);
  if (low == high) high += 0.001;
  const at::Tensor ramp =
      at::arange(frequencies.numel(), frequencies.options()).sub_(low).div_(high - low).clamp_(0, 1);
  return frequencies.div(scaling.factor).mul_(ramp).add_(frequencies.mul(ramp.neg().add_(1.0)));
}

}  // namespace

at::Tensor rope_frequencies(const ModelConfig& config, int64_t length) {
  const auto options = at::TensorOptions().dtype(at::kFloat);
  const auto dims = static_cast<double>(config.head_dim);
  const auto of = [&](double theta) {
    return at::pow(theta, at::arange(0, config.head_dim, 2, options).div_(dims)).reciprocal_();
  };
  const at::Tensor frequencies = of(config.rope_theta);
  if (!config.rope_scaling) return frequencies;
  if (const auto* llama3 = std::get_if<Llama3RopeScaling>(&*config.rope_scaling)) return scaled(frequencies, *llama3);
  if (const auto* yarn = std::get_if<YarnRopeScaling>(&*config.rope_scaling)) return scaled(frequencies, *yarn, config);
  if (const auto* linear = std::get_if<LinearRopeScaling>(&*config.rope_scaling))
    return frequencies.div(linear->factor);
  if (const auto* longrope = std::get_if<LongRopeScaling>(&*config.rope_scaling)) {
    const bool is_long = length > longrope->original_max_position_embeddings;
    const std::vector<double>& factors = is_long ? longrope->long_factor : longrope->short_factor;
    return frequencies.div(at::tensor(factors, at::kFloat));
  }
  if (length <= config.max_position_embeddings) return frequencies;
  const double factor = std::get<DynamicRopeScaling>(*config.rope_scaling).factor;
  const double longer = static_cast<double>(length) / static_cast<double>(config.max_position_embeddings);
  return of(config.rope_theta * std::pow(factor * longer - factor + 1, dims / (dims - 2)));
}

double rope_magnitude(const ModelConfig& config) {
  const auto* yarn = config.rope_scaling ? std::get_if<YarnRopeScaling>(&*config.rope_scaling) : nullptr;
  const double scores = config.attention_multiplier
                            ? std::sqrt(*config.attention_multiplier * std::sqrt(static_cast<double>(config.head_dim)))
                            : 1.0;
  const auto* longrope = config.rope_scaling ? std::get_if<LongRopeScaling>(&*config.rope_scaling) : nullptr;
  if (longrope) return scores * longrope->attention_factor;
  return scores * (yarn ? yarn->attention_factor : 1.0);
}

RopeTables RopeTable::get(int64_t length, const at::TensorOptions& options, bool rotates) {
  const std::lock_guard lock(mutex_);
  const at::ScalarType type = c10::typeMetaToScalarType(options.dtype());
  if (!tables_.cos.defined() || tables_.cos.size(0) != length || tables_.cos.scalar_type() != type ||
      tables_.cos.device() != options.device()) {
    if (is_simulated(options.device())) {
      tables_.cos = tables_.sin = at::empty({2, length, config_.head_dim / 2}, options)[0];
      if (!config_.rotated_layers.empty()) {
        identity_.cos = identity_.sin = at::empty({2, length, config_.head_dim / 2}, options)[0];
      }
      return rotates ? tables_ : identity_;
    }
    const at::Tensor frequencies = rope_frequencies(config_, length);
    const at::Tensor angles = at::outer(at::arange(length, frequencies.options()), frequencies);
    const double magnitude = rope_magnitude(config_);
    const auto table = [&](const at::Tensor& values) {
      return (magnitude == 1 ? values : values.to(at::kDouble).mul_(magnitude)).to(options.device(), type);
    };
    tables_ = {table(angles.cos()), table(angles.sin())};
    if (!config_.rotated_layers.empty()) identity_ = {at::ones_like(tables_.cos), at::zeros_like(tables_.sin)};
  }
  return rotates ? tables_ : identity_;
}

RopeTables RopeTable::get(const at::Tensor& x, const AttentionMask& mask, bool rotates) {
  const int64_t ranks = mask.ranks ? mask.ranks->size() : 1, rank = mask.ranks ? mask.ranks->rank() : 0;
  if (!mask.documents) {
    const RopeTables tables = get(ranks * x.size(1), x.options(), rotates);
    return {tables.cos.narrow(0, rank * x.size(1), x.size(1)), tables.sin.narrow(0, rank * x.size(1), x.size(1))};
  }
  const int64_t length = mask.documents->seq_length;
  const RopeTables tables = get(length, x.options(), rotates);
  at::Tensor positions = mask.documents->positions;
  if (ranks > 1) positions = positions.view({-1, ranks, length / ranks}).select(1, rank).reshape(-1);
  return {tables.cos.index_select(0, positions), tables.sin.index_select(0, positions)};
}

}  // namespace mpzero::model
