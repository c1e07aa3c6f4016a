#pragma once

#include <ATen/core/Tensor.h>

#include <mutex>
#include <utility>

#include "model/architecture/config.hpp"
#include "model/kernels/attention.hpp"
#include "model/kernels/qk_rope.hpp"

namespace mpzero::model {

// The frequencies [D/2] in radians per position, fp32 on the CPU: rope_theta^(-2i/D), with the model's scaling, if any,
// for sequences of `length` tokens.
at::Tensor rope_frequencies(const ModelConfig& config, int64_t length);
// Factor on cos and sin: the attention_factor of YaRN or LongRoPE times sqrt(s * sqrt(D)), where s is the model's
// attention scale instead of 1 / sqrt(D). The outer square root: queries and keys each get the factor.
double rope_magnitude(const ModelConfig& config);

// Caches the rotary tables of the last requested length, dtype and device. Thread-safe.
class RopeTable {
 public:
  explicit RopeTable(ModelConfig config) : config_(std::move(config)) {}

  // magnitude * cos and sin of position * frequency for positions 0 … length - 1, angles computed in fp32, then rounded
  // to the dtype in `options`; 1 and 0 if the layer does not rotate.
  RopeTables get(int64_t length, const at::TensorOptions& options, bool rotates = true);
  // For the positions of x [B, T, ...], this rank's tokens of possibly shared sequences; positions restart at 0 in each
  // packed document.
  RopeTables get(const at::Tensor& x, const AttentionMask& mask, bool rotates = true);

 private:
  ModelConfig config_;
  std::mutex mutex_;
  RopeTables tables_, identity_;
};

}  // namespace mpzero::model
