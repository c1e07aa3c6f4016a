#include "model/decoder.hpp"

#include <ATen/ops/embedding.h>

#include "base/error.hpp"
#include "model/adapters.hpp"
#include "model/architecture/architectures.hpp"
#include "model/matmuls.hpp"
#include "model/operation/elementwise.hpp"
#include "model/rope_table.hpp"
#include "model/rows.hpp"
#include "model/t5.hpp"

namespace mpzero::model {

namespace {

std::optional<LayerLayout> layout_of(const ModelConfig& config) {
  if (config.t5) return std::nullopt;
  return LayerLayout(find_architecture(config.model_type, "model configuration").layer_parameters(config));
}

}  // namespace

Decoder::Decoder(ModelConfig config, DecoderOptions options)
    : config_(std::move(config)),
      options_(std::move(options)),
      units_(model_units(config_)),
      layout_(layout_of(config_)),
      matmuls_(std::make_shared<Matmuls>(options_.fp8 ? options_.fp8->recipe.fast_accumulation
                                                      : fp8::FastAccumulation::kNone)),
      cast_weights_(std::make_shared<CastWeights>()),
      rope_(std::make_shared<RopeTable>(config_)) {
  config_.validate("model configuration");
  if (config_.lora) {
    lora_ = lora_layout(*config_.lora,
                        find_architecture(config_.model_type, "model configuration").layer_parameters(config_));
  }
  if (!options_.fp8) return;
  fp8_ = model::fp8_products(*options_.fp8, {units_.begin() + 1, units_.end() - 1}, *layout_, "DecoderOptions");
  cast_watch_ = std::make_shared<CastWatch>(config_.num_hidden_layers);
  if (options_.fp8->kept_casts == KeptCasts::kAll) kept_casts_ = config_.num_hidden_layers;
}

LayerCasts Decoder::casts(const Weights& layer) const {
  if (!options_.fp8) return {};
  if (!layer.layer) throw_failure("Decoder: FP8 requires the layer's index in Weights");
  CastWeights* kept = layer.version ? cast_weights_.get() : nullptr;
  CastWatch* watch = cast_watch_->is_on() ? cast_watch_.get() : nullptr;
  return {*layer.layer,
          fp8_[static_cast<size_t>(*layer.layer)],
          options_.fp8->recipe,
          kept,
          *layer.layer < kept_casts_,
          layer.version.value_or(0),
          watch,
          layer.scales,
          /*adapted=*/lora_.has_value()};
}

bool Decoder::rotates(const Weights& layer) const {
  if (config_.rotated_layers.empty()) return true;
  if (!layer.layer) throw_failure("Decoder: layers without RoPE require the layer's index in Weights");
  return config_.rotates(static_cast<size_t>(*layer.layer));
}

int64_t Decoder::tile_of(Recompute recompute, int64_t tokens) const {
  if (!runs_tiles(recompute) || options_.fp8 || lora_ || tokens <= options_.mlp_tile) return 0;
  return rows_of_piece(tokens, options_.mlp_tile);
}

LayerAdapters Decoder::adapters(const Weights& layer, const Dropout& dropout) const {
  return lora_ ? LayerAdapters(*lora_, config_.lora->scale(), layer, *matmuls_, dropout) : LayerAdapters();
}

std::vector<size_t> Decoder::forward_order() const {
  std::vector<size_t> order;
  for (size_t unit = embedding_unit(); unit <= head_unit(); ++unit) order.push_back(unit);
  if (tied_head()) order.push_back(embedding_unit());
  return order;
}

std::vector<size_t> Decoder::training_order(int64_t micro_batches) const {
  std::vector<size_t> order;
  const std::vector<size_t> forward = forward_order();
  for (int64_t micro_batch = 0; micro_batch < micro_batches; ++micro_batch) {
    order.insert(order.end(), forward.begin(), forward.end());
    for (int64_t layer = config_.num_hidden_layers; layer-- > 0;) order.push_back(layer_unit(layer));
  }
  return order;
}

std::string Decoder::weight_name(int64_t layer, LayerProduct product) const {
  const LayerRole role = roles_of(product, *layout_).front();
  const std::string& name = units_[layer_unit(layer)].parameters[(*layout_)[role]].name;
  return name.substr(0, name.rfind('.'));
}

std::vector<LayerValues> Decoder::graph() const {
  std::vector<LayerValues> layers;
  for (size_t layer = 0; layer < static_cast<size_t>(config_.num_hidden_layers); ++layer) {
    layers.push_back({.inputs = {layer}, .outputs = {layer + 1}});
  }
  return layers;
}

Values Decoder::embed(Weights embedding, const Batch& batch) const { return {embed_forward(embedding, batch.tokens)}; }

void Decoder::add_embedding_gradient(const Values& d_values, const Batch& batch, Gradients embedding) const {
  embed_backward(d_values.front(), batch.tokens, embedding);
}

Values Decoder::run_layer(Weights layer, const Values& inputs, LayerActivations* activations, Recompute recompute,
                          const Batch& batch) const {
  return {layer_forward(layer, inputs.front(), activations, recompute,
                        {.documents = batch.documents, .ranks = batch.ranks}, batch.dropout)};
}

Values Decoder::run_layer_backward(Weights layer, const Values& d_outputs, LayerActivations& activations,
                                   Gradients gradients) const {
  return {layer_backward(layer, d_outputs.front(), activations, gradients)};
}

at::Tensor Decoder::embed_forward(Weights embedding, const at::Tensor& tokens) const {
  const OperationScope scope("embedding_forward", [&] {
    Operation operation = on_matrix(embedding[0].scalar_type(), tokens.numel(), embedding[0].size(1), 2);
    operation.sizes.push_back(embedding[0].size(0));
    return operation;
  });
  at::Tensor x = at::embedding(embedding[0], tokens);
  if (config_.embedding_multiplier != 1) x.mul_(config_.embedding_multiplier);
  return x;
}

void Decoder::embed_backward(const at::Tensor& dy, const at::Tensor& tokens, Gradients embedding) const {
  const at::Tensor rows = dy.reshape({-1, config_.hidden_size});
  if (config_.embedding_multiplier == 1) return embedding[0].add_rows(tokens.reshape(-1), rows);
  at::Tensor scaled;
  {
    const OperationScope scope = elementwise(rows, 2);
    scaled = rows.mul(config_.embedding_multiplier);
  }
  embedding[0].add_rows(tokens.reshape(-1), scaled);
}

bool same_layers(const ModelConfig& config, int64_t one, int64_t other) {
  return !config.t5 || t5_layer(config, one) == t5_layer(config, other);
}

std::unique_ptr<Decoder> make_model(ModelConfig config, DecoderOptions options) {
  if (config.t5) return std::make_unique<T5>(std::move(config), std::move(options));
  return std::make_unique<Decoder>(std::move(config), std::move(options));
}

}  // namespace mpzero::model
