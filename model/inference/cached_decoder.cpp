#include "model/inference/cached_decoder.hpp"

#include <ATen/ops/embedding.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/scaled_dot_product_attention.h>

#include <utility>

#include "base/error.hpp"
#include "model/architecture/architectures.hpp"
#include "model/kernels/rms_norm.hpp"
#include "model/layer.hpp"

namespace mpzero::model {

CachedDecoder::CachedDecoder(ModelConfig config, std::vector<std::vector<at::Tensor>> weights, int64_t capacity)
    : config_(std::move(config)),
      layout_(find_architecture(config_.model_type, "model configuration").layer_parameters(config_)),
      capacity_(capacity),
      weights_(std::move(weights)),
      rope_(config_) {
  if (capacity < 1 || capacity > config_.positions()) {
    throw_failure("CachedDecoder: capacity is {}, but must be between 1 and {}", capacity, config_.positions());
  }
  const auto num_layers = static_cast<size_t>(config_.num_hidden_layers);
  if (weights_.size() != num_layers + 2) {
    throw_failure("CachedDecoder: got weights for {} units, but the model has {}", weights_.size(), num_layers + 2);
  }
  if (config_.lora) {
    lora_ = lora_layout(*config_.lora,
                        find_architecture(config_.model_type, "model configuration").layer_parameters(config_));
  }
  const at::TensorOptions options = weights_.front().front().options();
  for (size_t i = 0; i < num_layers; ++i) {
    layers_.push_back(by_role(weights_[i + 1], layout_));
    const auto allocate = [&] {
      return at::empty({1, config_.num_key_value_heads, capacity_, config_.head_dim}, options);
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
  at::Tensor x = at::embedding(weights_.front().front(), tokens).unsqueeze(0);
  if (config_.embedding_multiplier != 1) x.mul_(config_.embedding_multiplier);
  for (size_t i = 0; i < layers_.size(); ++i) {
    LayerActivations unused;
    const RopeTables all = rope_.get(capacity_, x.options(), config_.rotates(i));
    const LayerAdapters adapters(lora_, config_.lora ? config_.lora->scale() : 1, weights_[i + 1], matmuls_);
    x = layer_forward({.config = config_,
                       .layout = layout_,
                       .matmuls = matmuls_,
                       .casts = {},
                       .w = layers_[i],
                       .rope = {all.cos.narrow(0, length_, count), all.sin.narrow(0, length_, count)},
                       .adapters = adapters},
                      x, unused, fp8::Forms::kRows, [&](const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) {
                        return AttentionOutput{attend(caches_[i], q, k, v), {}};
                      });
  }
  length_ += count;
  const std::vector<at::Tensor>& head = weights_.back();
  const at::Tensor last = x.narrow(1, count - 1, 1).reshape({1, config_.hidden_size});
  at::Tensor normed = rms_norm_forward(last, head[0], config_.rms_norm_eps).y;
  if (config_.logits_scaling != 1) normed.div_(config_.logits_scaling);
  return matmuls_.forward(normed, config_.tie_word_embeddings ? weights_.front().front() : head[1]).squeeze(0);
}

// Appends k and v [1, T, kv_heads, D] to the cache. Returns the attention output for q: [1, T, heads, D].
at::Tensor CachedDecoder::attend(Cache& cache, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) {
  const int64_t count = q.size(1), heads = q.size(2), kv_heads = k.size(2);
  cache.keys.narrow(2, length_, count).copy_(k.transpose(1, 2));
  cache.values.narrow(2, length_, count).copy_(v.transpose(1, 2));
  if (length_ == 0) return attention_forward(choose_attention_kernel(q), q, k, v).out;
  // Each head has one query, which attends to all keys. Query heads that share keys are passed as several positions of
  // one head to avoid repeating the keys.
  const at::Tensor grouped = q.reshape({1, kv_heads, heads / kv_heads, config_.head_dim});
  const int64_t seen = length_ + count;
  return at::scaled_dot_product_attention(grouped, cache.keys.narrow(2, 0, seen), cache.values.narrow(2, 0, seen))
      .reshape(q.sizes());
}

}  // namespace mpzero::model
