#include "tests/model/flat_model.hpp"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/full.h>
#include <ATen/ops/randn.h>

#include <limits>
#include <stdexcept>

namespace mpzero::model {

FlatModel::FlatModel(const Decoder& decoder, at::TensorOptions options, at::ScalarType gradient_type, uint64_t seed)
    : decoder_(decoder) {
  const at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(seed);
  for (const UnitSpec& unit : decoder.units()) {
    const at::Tensor flat =
        at::randn({unit.numel()}, generator, at::kDouble).mul_(0.1).to(options.device(), at::kDouble);
    at::Tensor typed = flat.to(c10::typeMetaToScalarType(options.dtype()));
    // Elements that a gradient does not overwrite remain NaN.
    at::Tensor flat_gradient =
        at::full({unit.numel()}, std::numeric_limits<double>::quiet_NaN(), options.dtype(gradient_type));
    std::vector<at::Tensor> unit_weights;
    std::vector<Gradient> unit_gradients;
    int64_t offset = 0;
    for (const ParameterSpec& parameter : unit.parameters) {
      unit_weights.push_back(typed.narrow(0, offset, parameter.numel()).view(parameter.shape));
      if (parameter.shape.size() == 1 && !parameter.name.ends_with(".bias")) unit_weights.back().add_(1.0);
      unit_gradients.emplace_back(flat_gradient.narrow(0, offset, parameter.numel()).view(parameter.shape));
      offset += parameter.numel();
    }
    weights.push_back(std::move(unit_weights));
    gradients.push_back(std::move(unit_gradients));
    flat_gradients.push_back(flat_gradient);
  }
}

std::pair<size_t, size_t> FlatModel::find(const std::string& name) const {
  for (size_t u = 0; u < decoder_.units().size(); ++u) {
    const auto& parameters = decoder_.units()[u].parameters;
    for (size_t p = 0; p < parameters.size(); ++p) {
      if (parameters[p].name == name) return {u, p};
    }
  }
  throw std::out_of_range(name);
}

std::vector<std::string> FlatModel::names() const {
  std::vector<std::string> all;
  for (const UnitSpec& unit : decoder_.units()) {
    for (const ParameterSpec& parameter : unit.parameters) all.push_back(parameter.name);
  }
  return all;
}

Weights FlatModel::layer(int64_t index) const {
  Weights found(weights[decoder_.layer_unit(index)]);
  found.layer = index;
  return found;
}

void FlatModel::freeze() {
  for (size_t u = 0; u < gradients.size(); ++u) {
    for (size_t p = 0; p < gradients[u].size(); ++p) {
      const ParameterSpec& parameter = decoder_.units()[u].parameters[p];
      if (!parameter.trainable) gradients[u][p] = Gradient::unwanted(parameter.shape);
    }
  }
}

void FlatModel::reset_gradients() {
  for (auto& unit : gradients) {
    for (Gradient& gradient : unit) gradient.reset();
  }
}

at::Tensor FlatModel::forward_backward(const at::Tensor& tokens, double loss_scale, Recompute recompute,
                                       const at::Tensor& loss_mask, const AttentionMask& mask) {
  const int64_t length = tokens.size(1) - 1, layers = decoder_.config().num_hidden_layers;
  const at::Tensor inputs = tokens.narrow(1, 0, length), targets = tokens.narrow(1, 1, length);
  const size_t head = decoder_.head_unit();
  at::Tensor x = decoder_.embed_forward(weights[0], inputs);
  std::vector<LayerActivations> activations(static_cast<size_t>(layers));
  for (int64_t i = 0; i < layers; ++i) {
    x = decoder_.layer_forward(layer(i), x, &activations[static_cast<size_t>(i)], recompute, mask);
  }
  const bool tied = decoder_.tied_head();
  auto result =
      decoder_.head_forward_backward(weights[head], tied ? weights[0][0] : weights[head][1], x, targets, loss_scale,
                                     gradients[head], tied ? gradients[0][0] : gradients[head][1], loss_mask);
  at::Tensor dx = result.dx;
  for (int64_t i = layers - 1; i >= 0; --i) {
    const size_t unit = decoder_.layer_unit(i);
    dx = decoder_.layer_backward(layer(i), dx, activations[static_cast<size_t>(i)], gradients[unit]);
  }
  decoder_.embed_backward(dx, inputs, gradients[0]);
  return result.loss;
}

at::Tensor FlatModel::loss(const at::Tensor& tokens, const at::Tensor& loss_mask, const AttentionMask& mask) const {
  const int64_t length = tokens.size(1) - 1;
  at::Tensor x = decoder_.embed_forward(weights[0], tokens.narrow(1, 0, length));
  for (int64_t i = 0; i < decoder_.config().num_hidden_layers; ++i) {
    x = decoder_.layer_forward(layer(i), x, nullptr, Recompute::kNone, mask);
  }
  const auto& head = weights[decoder_.head_unit()];
  return decoder_.head_loss(head, decoder_.tied_head() ? weights[0][0] : head[1], x, tokens.narrow(1, 1, length),
                            loss_mask);
}

}  // namespace mpzero::model
