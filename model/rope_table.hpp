#pragma once

#include <ATen/core/Tensor.h>

#include <mutex>
#include <utility>

#include "model/architecture/config.hpp"
#include "model/kernels/attention.hpp"
#include "model/kernels/qk_rope.hpp"

namespace mpzero::model {

// The frequencies [D/2] in radians per position, fp32 on the CPU: rope_theta^(-2i/D), scaled if the model says so, for
// sequences of `length` tokens.
at::Tensor rope_frequencies(const ModelConfig& config, int64_t length);
// What cos and sin of the angles are multiplied by: YaRN's attention_factor, and the square root of the model's own
// scale of scores over attention's 1 / sqrt(D), since queries and keys both take it.
double rope_magnitude(const ModelConfig& config);

// Caches the rotary tables of the last requested length, type and device. Safe to use from several threads.
class RopeTable {
 public:
  explicit RopeTable(ModelConfig config) : config_(std::move(config)) {}

  // magnitude * cos and sin of position * frequency for positions 0 … length - 1, angles computed in fp32, then rounded
  // to the type in `options`. Unless the layer rotates: 1 and 0.
  RopeTables get(int64_t length, const at::TensorOptions& options, bool rotates = true);
  // Of the positions of x [B, T, ...]; with packed documents, of each token in its document.
  RopeTables get(const at::Tensor& x, const AttentionMask& mask, bool rotates = true);

 private:
  ModelConfig config_;
  std::mutex mutex_;
  RopeTables tables_, identity_;
};

}  // namespace mpzero::model
