#include "model/rope_table.hpp"

#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/outer.h>
#include <ATen/ops/pow.h>
#include <ATen/ops/where.h>

#include <numbers>

#include "base/device/simulated.hpp"

namespace mpzero::model {

at::Tensor rope_frequencies(const ModelConfig& config) {
  const auto options = at::TensorOptions().dtype(at::kFloat);
  const at::Tensor exponents = at::arange(0, config.head_dim, 2, options).div_(static_cast<double>(config.head_dim));
  at::Tensor frequencies = at::pow(config.rope_theta, exponents).reciprocal_();
  if (!config.rope_scaling) return frequencies;

  const Llama3RopeScaling& scaling = *config.rope_scaling;
  const double original = static_cast<double>(scaling.original_max_position_embeddings);
  const double low_wavelength = original / scaling.low_freq_factor;
  const double high_wavelength = original / scaling.high_freq_factor;
  const at::Tensor wavelengths = frequencies.reciprocal().mul_(2.0 * std::numbers::pi);
  // 0 at the low-frequency end of the band between the two wavelengths, 1 at the other.
  const at::Tensor blend = wavelengths.reciprocal()
                               .mul_(original)
                               .sub_(scaling.low_freq_factor)
                               .div_(scaling.high_freq_factor - scaling.low_freq_factor);
  const at::Tensor stretched = frequencies.div(scaling.factor);
  const at::Tensor blended = stretched.mul(blend.neg().add_(1.0)).add_(frequencies.mul(blend));
  return at::where(wavelengths.gt(low_wavelength), stretched,
                   at::where(wavelengths.lt(high_wavelength), frequencies, blended));
}

RopeTables RopeTable::get(int64_t length, const at::TensorOptions& options) {
  const std::lock_guard lock(mutex_);
  const at::ScalarType type = c10::typeMetaToScalarType(options.dtype());
  if (!tables_.cos.defined() || tables_.cos.size(0) != length || tables_.cos.scalar_type() != type ||
      tables_.cos.device() != options.device()) {
    if (is_simulated(options.device())) {
      tables_.cos = tables_.sin = at::empty({2, length, frequencies_.numel()}, options)[0];
      return tables_;
    }
    const at::Tensor positions = at::arange(length, frequencies_.options());
    const at::Tensor angles = at::outer(positions, frequencies_);
    tables_ = {angles.cos().to(options.device(), type), angles.sin().to(options.device(), type)};
  }
  return tables_;
}

RopeTables RopeTable::get(const at::Tensor& x, const AttentionMask& mask) {
  if (!mask.documents) return get(x.size(1), x.options());
  const RopeTables tables = get(mask.documents->seq_length, x.options());
  const at::Tensor& positions = mask.documents->positions;
  return {tables.cos.index_select(0, positions), tables.sin.index_select(0, positions)};
}

}  // namespace mpzero::model
