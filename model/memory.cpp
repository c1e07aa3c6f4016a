// How much memory the passes of decoder.hpp take.
#include "model/decoder.hpp"
#include "model/kernels/accumulate_type.hpp"
#include "model/kernels/attention.hpp"

namespace mpzero::model {
namespace {

int64_t bytes_of(at::ScalarType type) { return static_cast<int64_t>(c10::elementSize(type)); }

}  // namespace

// Counts the tensors of Saved (layer.cpp).
int64_t Decoder::activation_bytes(Recompute recompute, int64_t batch, int64_t length, at::Device device,
                                  at::ScalarType type) const {
  const int64_t tokens = batch * length, element = bytes_of(type);
  const int64_t hidden = tokens * config_.hidden_size * element;
  if (recompute == Recompute::kFull) return hidden;
  const int64_t inner = tokens * config_.intermediate_size * element;
  const int64_t query = tokens * config_.query_size() * element, key = tokens * config_.key_value_size() * element;
  const int64_t rstd = tokens * bytes_of(accumulate_type(type));
  const AttentionKernel kernel = choose_attention_kernel(device, type, config_.head_dim);
  // x, h and their rstd; the packed projection; attention's output; gate and up.
  int64_t sum = 2 * (hidden + rstd) + (query + 2 * key) + query + 2 * inner +
                attention_saved_bytes(kernel, batch, config_.num_attention_heads, length);
  if (recompute == Recompute::kSelective) return sum;
  if (layout_.has(LayerRole::kQueryNorm)) sum += query + key;
  return sum + 2 * hidden + inner;  // normed, h_normed; activated
}

}  // namespace mpzero::model
