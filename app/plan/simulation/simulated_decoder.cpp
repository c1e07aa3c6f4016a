#include "app/plan/simulation/simulated_decoder.hpp"

#include <ATen/ops/empty.h>

#include "app/simulation/simulated_device.hpp"
#include "base/error.hpp"

namespace mpzero::plan {

void SimulatedDecoder::take(const Seconds& seconds, const char* unit) const {
  SimulatedDevice& device = SimulatedDevice::current();
  const double queued = device.host_now() + seconds.launch_bound * slowdown_;
  device.queue(Work::kMatmuls, unit, seconds.matmuls * slowdown_);
  device.queue(Work::kAttention, unit, seconds.attention * slowdown_);
  device.queue(Work::kElementwise, unit, seconds.elementwise * slowdown_);
  // The last kernel cannot begin before the host has launched it.
  device.host_waits_until(queued);
  device.wait_until(device.current_stream(), queued);
}

at::Tensor SimulatedDecoder::embed_forward(model::Weights embedding, const at::Tensor& tokens) const {
  take(times_.embedding_forward);
  return at::empty({tokens.size(0), tokens.size(1), config().hidden_size}, embedding.front().options());
}

void SimulatedDecoder::embed_backward(const at::Tensor&, const at::Tensor&, model::Gradients) const {
  take(times_.embedding_backward);
}

at::Tensor SimulatedDecoder::layer_forward(model::Weights, const at::Tensor& x, model::LayerActivations* activations,
                                           model::Recompute recompute, const model::AttentionMask&,
                                           const std::optional<model::DropoutSeed>&) const {
  take(times_.forward(recompute));
  if (activations != nullptr) kept_.push_back(recompute);
  return x;
}

at::Tensor SimulatedDecoder::layer_backward(model::Weights, const at::Tensor& dy, model::LayerActivations&,
                                            model::Gradients) const {
  if (kept_.empty()) throw_failure("backward pass of a layer without a forward pass");
  take(times_.backward(kept_.back()));
  kept_.pop_back();
  return dy;
}

at::Tensor SimulatedDecoder::head_loss(model::Weights, const at::Tensor&, const at::Tensor&, const at::Tensor&,
                                       const at::Tensor&) const {
  throw_failure("validation cannot be simulated");
}

model::Decoder::HeadResult SimulatedDecoder::head_forward_backward(model::Weights, const at::Tensor&,
                                                                   const at::Tensor& x, const at::Tensor&, double,
                                                                   model::Gradients, model::Gradient&,
                                                                   const at::Tensor&, const model::Dropout&) const {
  take(times_.head, kHeadUnit);
  return {.loss = at::empty({}, x.options().dtype(at::kFloat)), .dx = x};
}

}  // namespace mpzero::plan
