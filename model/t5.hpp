#pragma once

#include "model/decoder.hpp"

namespace mpzero::model {

// [B, T or S, heads, k]
struct KeysValues {
  at::Tensor keys, values;
};
// A decoder layer's KV cache: of earlier tokens (self) and of the encoder's output (cross).
struct T5Cache {
  KeysValues self, cross;
};

// T5 (Raffel et al., 2020, arXiv:1910.10683), v1.0 and v1.1: an encoder for the batch's source, and a decoder for its
// tokens that attends to the encoder's output. Layers are the encoder's, then the decoder's.
class T5 final : public Decoder {
 public:
  explicit T5(ModelConfig config, DecoderOptions options = {}) : Decoder(std::move(config), std::move(options)) {}

  // The first layer of a stack passes on its table of relative position biases, so later layers need not gather it.
  std::vector<LayerValues> graph() const override;
  Values embed(Weights embedding, const Batch& batch) const override;
  Dropout head_dropout(const Batch& batch) const override;
  void add_embedding_gradient(const Values& d_values, const Batch& batch, Gradients embedding) const override;
  Values run_layer(Weights layer, const Values& inputs, LayerActivations* activations, Recompute recompute,
                   const Batch& batch) const override;
  Values run_layer_backward(Weights layer, const Values& d_outputs, LayerActivations& activations,
                            Gradients gradients) const override;

  // Forward of a decoder layer on the tokens that follow those in the cache; appends them to the cache.
  Values run_cached(Weights layer, const Values& inputs, const Batch& batch, T5Cache& cache) const;
  // x [B, T, d]: the last layer's output -> [B * T, V].
  at::Tensor logits(Weights head, const at::Tensor& embedding, const at::Tensor& x) const;

 private:
  Dropout dropout_at(size_t unit, uint32_t place, const Batch& batch) const;
};

}  // namespace mpzero::model
