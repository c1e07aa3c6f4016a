#pragma once

#include <memory>
#include <vector>

#include "app/measure/stopwatch.hpp"
#include "app/simulation/unit_record.hpp"
#include "model/decoder.hpp"

namespace mpzero::measure {

// Measures whole decoder layers with random weights. Because of GPU clocks and caches, a layer's time differs from the
// sum of its operations' times. The backward pass overwrites the gradients.
class LayerRun {
 public:
  // `layers`: number of layers, each with its own weights and activations.
  LayerRun(const model::ModelConfig& config, const plan::MicroBatchShape& shape, at::Device device, int layers);

  // Return the time per layer. The layers run in sequence.
  Timing forward(const Effort& effort);
  Timing backward(const Effort& effort);

 private:
  struct Layer {
    std::vector<at::Tensor> weights;
    std::vector<at::Tensor> gradients;
    at::Tensor x;
    model::LayerActivations kept;
  };
  Layer make_layer(const plan::MicroBatchShape& shape) const;
  static model::Weights weights_of(const Layer& layer);

  model::Decoder decoder_;
  at::Device device_;
  std::vector<Layer> layers_;
};

}  // namespace mpzero::measure
