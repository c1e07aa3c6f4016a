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

// A model that reads one token after another, and gives the logits of the next one.
class CachedModel {
 public:
  virtual ~CachedModel() = default;
  // Forgets earlier tokens and reads these [T] int64, on the weights' device. Returns the logits [V] of the next token.
  virtual at::Tensor begin(const at::Tensor& tokens) = 0;
  // Reads one token more, [1] int64.
  virtual at::Tensor append(const at::Tensor& token) = 0;
  // Tokens read.
  virtual int64_t length() const = 0;
};

// The forward pass of one sequence that grows: keys and values of earlier tokens are kept, so that each further token
// costs one pass over the weights and one over the cache. The kernels are those of Decoder, whose logits it computes to
// rounding. No backward. Not thread-safe.
//
// The cache holds 2 * layers * kv_heads * head_dim * capacity elements of the weights' type.
class CachedDecoder final : public CachedModel {
 public:
  // `weights`: of each unit of model_units(config), in its order, adjacent in the unit's flat buffer (see
  // model/decoder.hpp); one dtype (fp64, fp32 or bf16) and device. `capacity`: the most tokens of a sequence, from 1 to
  // config.positions(). Throws Failure for another capacity, and for weights of other units.
  CachedDecoder(ModelConfig config, std::vector<std::vector<at::Tensor>> weights, int64_t capacity);

  // Begins a sequence with tokens [T] int64 on the weights' device, T from 1 to the capacity, and forgets the sequence
  // before. Returns the logits [V] of the next token, in the weights' type.
  at::Tensor begin(const at::Tensor& tokens) override;
  // Appends one token, [1] int64, to the sequence that begin() has begun. Returns the logits [V] of the next token.
  at::Tensor append(const at::Tensor& token) override;

  // Tokens of the sequence so far.
  int64_t length() const override { return length_; }
  int64_t capacity() const { return capacity_; }
  const ModelConfig& config() const { return config_; }

 private:
  // Of one layer: [1, kv_heads, capacity, head_dim].
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
