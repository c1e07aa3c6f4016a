#include "model/inference/cached_t5.hpp"

#include <ATen/ops/full.h>

#include <utility>

namespace mpzero::model {

CachedT5::CachedT5(ModelConfig config, std::vector<std::vector<at::Tensor>> weights)
    : model_(std::move(config)), weights_(std::move(weights)) {}

Weights CachedT5::layer(int64_t index) const {
  Weights weights(weights_[model_.layer_unit(index)]);
  weights.layer = index;
  return weights;
}

at::Tensor CachedT5::begin(const at::Tensor& source) {
  const ModelConfig& config = model_.config();
  length_ = source.size(0) - 1;
  source_ = source.unsqueeze(0);
  const Batch batch{.tokens = source_, .targets = {}, .source = source_};
  const int64_t encoder = config.t5->encoder_layers;
  memory_ = model_.embed_forward(weights_.front(), source_);
  at::Tensor table;
  for (int64_t index = 0; index < encoder; ++index) {
    Values inputs{memory_};
    if (table.defined()) inputs.push_back(table);
    const Values outputs = model_.run_layer(layer(index), inputs, nullptr, Recompute::kNone, batch);
    memory_ = outputs.front();
    if (index == 0) table = outputs.back();
  }
  caches_.assign(static_cast<size_t>(config.num_hidden_layers - encoder), {});
  return append(at::full({1}, config.t5->decoder_start_token_id, source.options()));
}

at::Tensor CachedT5::append(const at::Tensor& token) {
  const ModelConfig& config = model_.config();
  const int64_t encoder = config.t5->encoder_layers;
  const Batch batch{.tokens = token.unsqueeze(0), .targets = {}, .source = source_};
  at::Tensor x = model_.embed_forward(weights_.front(), batch.tokens), table;
  for (size_t i = 0; i < caches_.size(); ++i) {
    Values inputs{x};
    if (i > 0) inputs.push_back(table);
    inputs.push_back(memory_);
    const Values outputs = model_.run_cached(layer(encoder + static_cast<int64_t>(i)), inputs, batch, caches_[i]);
    x = outputs.front();
    if (i == 0) table = outputs.back();
  }
  ++length_;
  return model_.logits(weights_.back(), weights_.front().front(), x).view({-1});
}

}  // namespace mpzero::model
