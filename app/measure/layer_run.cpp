#include "app/measure/layer_run.hpp"

#include <ATen/ops/empty.h>
#include <ATen/ops/randn.h>

#include <algorithm>

#include "parallel/zero/flat_unit.hpp"

namespace mpzero::measure {

LayerRun::LayerRun(const model::ModelConfig& config, const plan::MicroBatchShape& shape, at::Device device, int layers)
    : decoder_(config), device_(device) {
  for (int layer = 0; layer < std::max(1, layers); ++layer) layers_.push_back(make_layer(shape));
  forward({.repeats = 1});
}

LayerRun::Layer LayerRun::make_layer(const plan::MicroBatchShape& shape) const {
  const UnitSpec& unit = decoder_.units()[decoder_.layer_unit(0)];
  const auto options = at::TensorOptions().dtype(shape.type).device(device_);
  Layer made;
  made.weights = parallel::parameter_views(at::empty({unit.numel()}, options).normal_(0.0, 0.02), unit);
  for (at::Tensor& weight : made.weights) {
    if (weight.dim() == 1) weight.fill_(1.0);
  }
  made.gradients = parallel::parameter_views(at::empty({unit.numel()}, options.dtype(shape.gradient_type)), unit);
  made.x = at::randn({shape.sequences, shape.length, decoder_.config().hidden_size}, options);
  return made;
}

// Passes the layer as the first layer of the model.
model::Weights LayerRun::weights_of(const Layer& layer) {
  model::Weights weights(layer.weights);
  weights.layer = 0;
  return weights;
}

Timing LayerRun::forward(const Effort& effort) {
  return measure(device_, static_cast<int>(layers_.size()), effort, [this](int index) {
    Layer& layer = layers_[static_cast<size_t>(index)];
    return std::vector<at::Tensor>{decoder_.layer_forward(weights_of(layer), layer.x, &layer.kept)};
  });
}

Timing LayerRun::backward(const Effort& effort) {
  return measure(device_, static_cast<int>(layers_.size()), effort, [this](int index) {
    Layer& layer = layers_[static_cast<size_t>(index)];
    model::LayerActivations kept = layer.kept;
    std::vector<model::Gradient> gradients(layer.gradients.begin(), layer.gradients.end());
    return std::vector<at::Tensor>{decoder_.layer_backward(weights_of(layer), layer.x, kept, gradients)};
  });
}

}  // namespace mpzero::measure
