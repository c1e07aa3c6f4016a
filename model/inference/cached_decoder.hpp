#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "model/decoder.hpp"

namespace mpzero::model {

// Interface for incremental inference: reads tokens and returns the logits of the next token.
class CachedModel {
 public:
  virtual ~CachedModel() = default;
  // Starts a new sequence with `tokens` ([T] int64, on the weights' device). Returns the logits [V] of the next token.
  virtual at::Tensor begin(const at::Tensor& tokens) = 0;
  // Appends `token` ([1] int64). Returns the logits [V] of the next token.
  virtual at::Tensor append(const at::Tensor& token) = 0;
  // Returns the number of tokens read so far.
  virtual int64_t length() const = 0;
};

// Forward pass with a KV cache for one growing sequence. For each new token, all weights and the whole cache are read
// once. CachedDecoder uses the kernels of Decoder, and its logits equal those of Decoder up to rounding. Does not
// support a backward pass. Not thread-safe.
//
// The KV cache has 2 * layers * kv_heads * head_dim * capacity elements of the weights' dtype.
class CachedDecoder final : public CachedModel {
 public:
  // `weights`: weights of each unit in the order of model_units(config), adjacent in the unit's flat buffer (see
  // Weights in model/decoder.hpp), with one dtype (fp64, fp32 or bf16) and device. `capacity`: maximum sequence length,
  // from 1 to config.positions(). Throws Failure if the capacity or the number of units is invalid.
  CachedDecoder(ModelConfig config, std::vector<std::vector<at::Tensor>> weights, int64_t capacity);

  // See CachedModel. T must not exceed the capacity. The logits have the dtype of the weights.
  at::Tensor begin(const at::Tensor& tokens) override;
  at::Tensor append(const at::Tensor& token) override;

  int64_t length() const override { return length_; }
  int64_t capacity() const { return capacity_; }
  const ModelConfig& config() const { return model_.config(); }

 private:
  // KV cache of one layer: [1, kv_heads, capacity, head_dim].
  struct Cache {
    at::Tensor keys, values;
  };

  // Runs all units on `tokens` [T], which follow the first length_ tokens of the sequence.
  at::Tensor run(const at::Tensor& tokens);
  at::Tensor attend(Cache& cache, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v);

  Decoder model_;
  int64_t capacity_;
  int64_t length_ = 0;
  std::vector<std::vector<at::Tensor>> weights_;
  std::vector<Cache> caches_;
};

}  // namespace mpzero::model
