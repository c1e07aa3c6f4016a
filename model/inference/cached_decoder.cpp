#include "model/inference/cached_decoder.hpp"

#include <ATen/ops/empty.h>
#include <ATen/ops/scaled_dot_product_attention.h>

#include <utility>

#include "base/error.hpp"
#include "model/kernels/attention.hpp"

namespace mpzero::model {

CachedDecoder::CachedDecoder(ModelConfig config, std::vector<std::vector<at::Tensor>> weights, int64_t capacity)
    : model_(std::move(config)), capacity_(capacity), weights_(std::move(weights)) {
  const int64_t positions = model_.config().positions();
  if (capacity < 1 || capacity > positions) {
    throw_failure("CachedDecoder: capacity is {}, but must be between 1 and {}", capacity, positions);
  }
  if (weights_.size() != model_.units().size()) {
    throw_failure("CachedDecoder: got weights for {} units, but the model has {}", weights_.size(),
                  model_.units().size());
  }
  const at::TensorOptions options = weights_.front().front().options();
  for (int64_t i = 0; i < model_.config().num_hidden_layers; ++i) {
    const auto allocate = [&] {
      return at::empty({1, model_.config().num_key_value_heads, capacity_, model_.config().head_dim}, options);
    };
    caches_.push_back({.keys = allocate(), .values = allocate()});
  }
}

at::Tensor CachedDecoder::begin(const at::Tensor& tokens) {
  length_ = 0;
  return run(tokens);
}

at::Tensor CachedDecoder::append(const at::Tensor& token) {
  if (length_ == 0 || token.size(0) != 1) {
    throw_failure("CachedDecoder: cannot append {} tokens to a sequence of {}; append single tokens after begin()",
                  token.size(0), length_);
  }
  return run(token);
}

at::Tensor CachedDecoder::run(const at::Tensor& tokens) {
  const int64_t count = tokens.size(0);
  if (count < 1 || length_ + count > capacity_) {
    throw_failure("CachedDecoder: {} tokens after {} cached tokens exceed the cache capacity of {}", count, length_,
                  capacity_);
  }
  at::Tensor x = model_.embed_forward(weights_.front(), tokens.unsqueeze(0));
  for (size_t i = 0; i < caches_.size(); ++i) {
    Weights layer(weights_[i + 1]);
    layer.layer = static_cast<int64_t>(i);
    x = model_.layer_cached(layer, x, length_, capacity_,
                            [&](const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) {
                              return AttentionOutput{attend(caches_[i], q, k, v), {}};
                            });
  }
  length_ += count;
  return model_.logits(weights_.back(), weights_.front().front(), x.narrow(1, count - 1, 1)).squeeze(0);
}

// Appends k and v [1, T, kv_heads, D] to the cache. Returns the attention output for q: [1, T, heads, D].
at::Tensor CachedDecoder::attend(Cache& cache, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) {
  const int64_t count = q.size(1), heads = q.size(2), kv_heads = k.size(2);
  cache.keys.narrow(2, length_, count).copy_(k.transpose(1, 2));
  cache.values.narrow(2, length_, count).copy_(v.transpose(1, 2));
  if (length_ == 0) return attention_forward(choose_attention_kernel(q), q, k, v).out;
  // Each head has one query, which attends to all keys. Query heads that share keys are passed as several positions of
  // one head to avoid repeating the keys.
  const at::Tensor grouped = q.reshape({1, kv_heads, heads / kv_heads, model_.config().head_dim});
  const int64_t seen = length_ + count;
  return at::scaled_dot_product_attention(grouped, cache.keys.narrow(2, 0, seen), cache.values.narrow(2, 0, seen))
      .reshape(q.sizes());
}

}  // namespace mpzero::model
