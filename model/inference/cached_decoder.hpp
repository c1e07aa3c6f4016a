#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "model/architecture/config.hpp"
#include "model/architecture/layer_layout.hpp"
#include "model/layer.hpp"
#include "model/matmuls.hpp"
#include "model/rope_table.hpp"

namespace mpzero::model {

// Incremental inference: reads tokens one by one and returns the logits of the next token.
class CachedModel {
 public:
  virtual ~CachedModel() = default;
  // Starts a new sequence with tokens [T] int64 on the weights' device. Returns the logits [V] of the next token.
  virtual at::Tensor begin(const at::Tensor& tokens) = 0;
  // Appends one token [1] int64. Returns the logits [V] of the next token.
  virtual at::Tensor append(const at::Tensor& token) = 0;
  // Number of tokens read.
  virtual int64_t length() const = 0;
};

// Forward pass with a KV cache for one growing sequence: each new token costs one pass over the weights and one over
// the cache. Uses Decoder's kernels; logits equal Decoder's up to rounding. No backward. Not thread-safe.
//
// The cache has 2 * layers * kv_heads * head_dim * capacity elements of the weights' dtype.
class CachedDecoder final : public CachedModel {
 public:
  // `weights`: per unit of model_units(config), in that order, adjacent in the unit's flat buffer (see
  // model/decoder.hpp); one dtype (fp64, fp32 or bf16) and device. `capacity`: maximum sequence length, from 1 to
  // config.positions(). Throws Failure for another capacity or a different number of units.
  CachedDecoder(ModelConfig config, std::vector<std::vector<at::Tensor>> weights, int64_t capacity);

  // Starts a new sequence with tokens [T] int64 on the weights' device, T from 1 to the capacity. Returns the logits
  // [V] of the next token, in the weights' dtype.
  at::Tensor begin(const at::Tensor& tokens) override;
  // Appends one token [1] int64 to the sequence that begin() started. Returns the logits [V] of the next token.
  at::Tensor append(const at::Tensor& token) override;

  // Number of tokens in the sequence so far.
  int64_t length() const override { return length_; }
  int64_t capacity() const { return capacity_; }
  const ModelConfig& config() const { return config_; }

 private:
  // One layer's cache: [1, kv_heads, capacity, head_dim].
  struct Cache {
    at::Tensor keys, values;
  };

  // Runs the units on tokens [T] that follow the first length_ ones.
  at::Tensor run(const at::Tensor& tokens);
  at::Tensor attend(Cache& cache, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v);

  ModelConfig config_;
  LayerLayout layout_;
  int64_t capacity_;
  int64_t length_ = 0;
  std::vector<std::vector<at::Tensor>> weights_;
  std::vector<LayerWeights> layers_;
  LoraLayout lora_;  // empty without adapters
  std::vector<Cache> caches_;
  Matmuls matmuls_;
  RopeTable rope_;
};

}  // namespace mpzero::model
