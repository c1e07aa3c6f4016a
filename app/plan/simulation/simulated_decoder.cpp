#include "app/plan/simulation/simulated_decoder.hpp"

#include <ATen/ops/empty.h>

#include <any>
#include <utility>

#include "app/simulation/simulated_device.hpp"
#include "model/kernels/attention.hpp"

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

model::Values SimulatedDecoder::embed(model::Weights embedding, const model::Batch& batch) const {
  take(times_.embedding_forward);
  return {at::empty({batch.tokens.size(0), batch.tokens.size(1), config().hidden_size}, embedding.front().options())};
}

void SimulatedDecoder::add_embedding_gradient(const model::Values&, const model::Batch&, model::Gradients) const {
  take(times_.embedding_backward);
}

model::Values SimulatedDecoder::run_layer(model::Weights, const model::Values& inputs,
                                          model::LayerActivations* activations, model::Recompute recompute,
                                          const model::Batch&) const {
  take(times_.layer_forward[recompute]);
  if (activations == nullptr) return inputs;
  activations->of_family = recompute;
  activations->recompute = recompute;
  if (recompute == model::Recompute::kHostAttention) {
    const at::Tensor& x = inputs.front();
    activations->attended.out = at::empty({x.size(0), x.size(1), config().query_size()}, x.options());
    if (model::choose_attention_kernel(x.device(), x.scalar_type(), config().head_dim) !=
        model::AttentionKernel::kMath) {
      activations->attended.saved = {
          at::empty({x.size(0), config().num_attention_heads, x.size(1)}, x.options().dtype(at::kFloat))};
    }
  }
  return inputs;
}

model::Values SimulatedDecoder::run_layer_backward(model::Weights, const model::Values& d_outputs,
                                                   model::LayerActivations& activations, model::Gradients) const {
  take(times_.layer_backward[std::any_cast<model::Recompute>(std::exchange(activations, {}).of_family)]);
  return d_outputs;
}

model::Decoder::HeadResult SimulatedDecoder::head_forward_backward(model::Weights, const at::Tensor&,
                                                                   const at::Tensor& x, const at::Tensor&, double,
                                                                   model::Gradients, model::Gradient&,
                                                                   const at::Tensor&, const model::Dropout&) const {
  take(times_.head, kHeadUnit);
  return {.loss = at::empty({}, x.options().dtype(at::kFloat)), .dx = x};
}

}  // namespace mpzero::plan
