#pragma once

#include "app/plan/unit_times.hpp"
#include "model/decoder.hpp"

namespace mpzero::plan {

// Name of the LM head's records on the simulated device.
inline constexpr const char* kHeadUnit = "LM head";

// Decoder on the simulated device. Instead of computing, each call queues work that takes the calibrated times.
// Replaces model::Decoder because calibrations give mean times of units (UnitTimes), not the start and end of each
// operator.
class SimulatedDecoder final : public model::Decoder {
 public:
  // `slowdown`: factor applied to all times.
  SimulatedDecoder(model::ModelConfig config, const UnitTimes& times, double slowdown = 1)
      : Decoder(std::move(config)), times_(times), slowdown_(slowdown) {}

  model::Values embed(model::Weights embedding, const model::Batch& batch) const override;
  void add_embedding_gradient(const model::Values& d_values, const model::Batch& batch,
                              model::Gradients embedding) const override;
  model::Values run_layer(model::Weights layer, const model::Values& inputs, model::LayerActivations* activations,
                          model::Recompute recompute, const model::Batch& batch) const override;
  model::Values run_layer_backward(model::Weights layer, const model::Values& d_outputs,
                                   model::LayerActivations& activations, model::Gradients gradients) const override;
  HeadResult head_forward_backward(model::Weights head, const at::Tensor& output_weight, const at::Tensor& x,
                                   const at::Tensor& targets, double loss_scale, model::Gradients head_gradients,
                                   model::Gradient& output_weight_gradient, const at::Tensor& loss_mask,
                                   const model::Dropout& dropout) const override;

 private:
  void take(const Seconds& seconds, const char* unit = "unit") const;

  UnitTimes times_;
  double slowdown_;
};

}  // namespace mpzero::plan
