#pragma once

#include <ATen/core/Tensor.h>

#include <mutex>
#include <utility>

#include "model/architecture/config.hpp"
#include "model/kernels/attention.hpp"
#include "model/kernels/qk_rope.hpp"

namespace mpzero::model {

// Returns the rotary frequencies [D / 2] in radians per position, fp32 on the CPU: rope_theta^(-2i/D) with the model's
// scaling, if any, for sequences of `length` tokens.
at::Tensor rope_frequencies(const ModelConfig& config, int64_t length);
// Returns the factor by which cos and sin are multiplied: the attention_factor of YaRN or LongRoPE times sqrt(s *
// sqrt(D)), with the model's attention scale s (1 / sqrt(D) by default). Attention scores are scaled by the square of
// the factor, because it multiplies both queries and keys.
double rope_magnitude(const ModelConfig& config);

// Caches the rotary tables of the last requested length, dtype and device. Thread-safe.
class RopeTable {
 public:
  explicit RopeTable(ModelConfig config) : config_(std::move(config)) {}

  // Returns magnitude * cos and magnitude * sin of position * frequency for positions 0 to length - 1. Angles are
  // computed in fp32, and results are rounded to the dtype in `options`. If `rotates` is false, returns tables of cos =
  // 1 and sin = 0.
  RopeTables get(int64_t length, const at::TensorOptions& options, bool rotates = true);
  // Returns the tables for the positions of x [B, T, ...], which contains this rank's tokens under sequence
  // parallelism. Positions restart at 0 in each packed document.
  RopeTables get(const at::Tensor& x, const AttentionMask& mask, bool rotates = true);

 private:
  ModelConfig config_;
  std::mutex mutex_;
  RopeTables tables_, identity_;
};

}  // namespace mpzero::model
