#pragma once

#include "model/decoder.hpp"

namespace mpzero::model {

// Keys and values, each [B, T or S, heads, k].
struct KeysValues {
  at::Tensor keys, values;
};
// KV cache of a decoder layer. `self`: keys and values of earlier tokens. `cross`: keys and values of the encoder's
// output.
struct T5Cache {
  KeysValues self, cross;
};

// T5 (Raffel et al., 2020, arXiv:1910.10683), v1.0 and v1.1. The encoder reads the batch's source. The decoder reads
// the batch's tokens and attends to the encoder's output. Encoder layers precede decoder layers.
class T5 final : public Decoder {
 public:
  explicit T5(ModelConfig config, DecoderOptions options = {}) : Decoder(std::move(config), std::move(options)) {}

  // Returns a graph in which the first layer of each stack outputs its table of relative position biases for all later
  // layers of the stack.
  std::vector<LayerValues> graph() const override;
  Values embed(Weights embedding, const Batch& batch) const override;
  Dropout head_dropout(const Batch& batch) const override;
  void add_embedding_gradient(const Values& d_values, const Batch& batch, Gradients embedding) const override;
  Values run_layer(Weights layer, const Values& inputs, LayerActivations* activations, Recompute recompute,
                   const Batch& batch) const override;
  Values run_layer_backward(Weights layer, const Values& d_outputs, LayerActivations& activations,
                            Gradients gradients) const override;

  // Runs a decoder layer on the tokens that follow the cached tokens, and appends the new tokens to the cache.
  Values run_cached(Weights layer, const Values& inputs, const Batch& batch, T5Cache& cache) const;
  at::Tensor logits(Weights head, const at::Tensor& embedding, const at::Tensor& x) const override;

 private:
  Dropout dropout_at(size_t unit, uint32_t place, const Batch& batch) const;
};

}  // namespace mpzero::model
