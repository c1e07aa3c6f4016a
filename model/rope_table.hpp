#pragma once

#include <ATen/core/Tensor.h>

#include <mutex>

#include "model/architecture/config.hpp"
#include "model/kernels/attention.hpp"
#include "model/kernels/qk_rope.hpp"

namespace mpzero::model {

// The frequencies [D/2] in radians per position, fp32 on the CPU: rope_theta^(-2i/D), scaled if the model says so.
at::Tensor rope_frequencies(const ModelConfig& config);

// Caches the rotary tables of the last requested length, type and device. Safe to use from several threads.
class RopeTable {
 public:
  explicit RopeTable(const ModelConfig& config) : frequencies_(rope_frequencies(config)) {}

  // cos and sin of position * frequency for positions 0 … length - 1, computed in fp32, then rounded to the type in
  // `options`.
  RopeTables get(int64_t length, const at::TensorOptions& options);
  // Of the positions of x [B, T, ...]; with packed documents, of each token in its document.
  RopeTables get(const at::Tensor& x, const AttentionMask& mask);

 private:
  at::Tensor frequencies_;
  std::mutex mutex_;
  RopeTables tables_;
};

}  // namespace mpzero::model
