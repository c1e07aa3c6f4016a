#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "model/inference/cached_decoder.hpp"
#include "model/t5.hpp"

namespace mpzero::model {

// Incremental T5 inference for one source. The encoder runs once. For each new token, the decoder's weights and its
// growing KV cache are read once. Otherwise, CachedT5 behaves like CachedDecoder.
class CachedT5 final : public CachedModel {
 public:
  // `weights`: see CachedDecoder.
  CachedT5(ModelConfig config, std::vector<std::vector<at::Tensor>> weights);

  // Encodes `source` ([S] int64) and starts decoding. Returns the logits [V] of the first output token.
  at::Tensor begin(const at::Tensor& source) override;
  // Appends `token` ([1] int64) to the output. Returns the logits [V] of the next token.
  at::Tensor append(const at::Tensor& token) override;

  // Returns the number of tokens in the source and the output.
  int64_t length() const override { return length_; }

 private:
  Weights layer(int64_t index) const;

  T5 model_;
  std::vector<std::vector<at::Tensor>> weights_;
  int64_t length_ = 0;
  at::Tensor memory_;            // [1, S, d]: the encoder's output
  at::Tensor source_;            // [1, S]
  std::vector<T5Cache> caches_;  // one cache per decoder layer
};

}  // namespace mpzero::model
