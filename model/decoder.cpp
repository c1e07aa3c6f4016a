#include "model/decoder.hpp"

#include <ATen/ops/embedding.h>

#include "model/architectures.hpp"
#include "model/rope_table.hpp"

namespace mpzero::model {

Decoder::Decoder(ModelConfig config, DecoderOptions options)
    : config_(std::move(config)), options_(options), units_(model_units(config_)) {
  config_.validate("model configuration");
  role_index_.fill(kAbsent);
  const Architecture& architecture = find_architecture(config_.model_type, "model configuration");
  const std::vector<LayerParameter> parameters = architecture.layer_parameters(config_);
  for (size_t i = 0; i < parameters.size(); ++i) role_index_[static_cast<size_t>(parameters[i].role)] = i;
  rope_ = std::make_shared<RopeTable>(config_);
}

at::Tensor Decoder::embed_forward(Weights embedding, const at::Tensor& tokens) const {
  return at::embedding(embedding[0], tokens);
}

void Decoder::embed_backward(const at::Tensor& dy, const at::Tensor& tokens, Gradients embedding) const {
  embedding[0].add_rows(tokens.reshape(-1), dy.reshape({-1, config_.hidden_size}));
}

}  // namespace mpzero::model
