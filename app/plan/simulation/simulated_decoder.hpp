#pragma once

#include <vector>

#include "app/plan/unit_times.hpp"
#include "model/decoder.hpp"

namespace mpzero::plan {

// Name of the LM head's records on the simulated device.
inline constexpr const char* kHeadUnit = "LM head";

// Decoder on the simulated device. Instead of computing, each call queues work that takes the calibrated times.
class SimulatedDecoder final : public model::Decoder {
 public:
  // `slowdown`: factor applied to all times.
  SimulatedDecoder(model::ModelConfig config, const UnitTimes& times, double slowdown = 1)
      : Decoder(std::move(config)), times_(times), slowdown_(slowdown) {}

  at::Tensor embed_forward(model::Weights embedding, const at::Tensor& tokens) const override;
  void embed_backward(const at::Tensor& dy, const at::Tensor& tokens, model::Gradients embedding) const override;
  at::Tensor layer_forward(model::Weights layer, const at::Tensor& x, model::LayerActivations* activations,
                           model::Recompute recompute, const model::AttentionMask& mask,
                           const std::optional<model::DropoutSeed>&) const override;
  at::Tensor layer_backward(model::Weights layer, const at::Tensor& dy, model::LayerActivations& activations,
                            model::Gradients gradients) const override;
  at::Tensor head_loss(model::Weights head, const at::Tensor& output_weight, const at::Tensor& x,
                       const at::Tensor& targets, const at::Tensor& loss_mask) const override;
  HeadResult head_forward_backward(model::Weights head, const at::Tensor& output_weight, const at::Tensor& x,
                                   const at::Tensor& targets, double loss_scale, model::Gradients head_gradients,
                                   model::Gradient& output_weight_gradient, const at::Tensor& loss_mask,
                                   const model::Dropout& dropout) const override;

 private:
  void take(const Seconds& seconds, const char* unit = "unit") const;

  UnitTimes times_;
  double slowdown_;
  // Recompute levels of the layers whose backward is pending, in forward order.
  mutable std::vector<model::Recompute> kept_;
};

}  // namespace mpzero::plan
