#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "model/inference/cached_decoder.hpp"
#include "model/t5.hpp"

namespace mpzero::model {

// Incremental T5 inference for one source: the encoder runs once; each new token costs one pass over the decoder's
// weights and one over its growing cache. Otherwise like CachedDecoder.
class CachedT5 final : public CachedModel {
 public:
  // `weights`: as in CachedDecoder.
  CachedT5(ModelConfig config, std::vector<std::vector<at::Tensor>> weights);

  // Encodes a source [S] int64 and starts an output. Returns the logits [V] of its first token.
  at::Tensor begin(const at::Tensor& source) override;
  // Appends one token [1] int64 to the output. Returns the logits [V] of the next token.
  at::Tensor append(const at::Tensor& token) override;

  // Number of tokens read, in source and output.
  int64_t length() const override { return length_; }

 private:
  Weights layer(int64_t index) const;

  T5 model_;
  std::vector<std::vector<at::Tensor>> weights_;
  int64_t length_ = 0;
  at::Tensor memory_;            // [1, S, d], the encoder's output
  at::Tensor source_;            // [1, S]
  std::vector<T5Cache> caches_;  // by layer of the decoder
};

}  // namespace mpzero::model
