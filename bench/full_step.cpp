#include "bench/full_step.hpp"

#include <ATen/ops/empty.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/zeros.h>

#include "parallel/zero/flat_unit.hpp"

namespace mpzero::bench {

using model::Gradient;
using model::LayerActivations;

FullStep::FullStep(const model::ModelConfig& config, int64_t micro_batch, int64_t length, bool with_optimizer)
    : decoder_(config) {
  const auto bf16 = at::TensorOptions().dtype(at::kBFloat16).device(at::kCUDA);
  for (const UnitSpec& spec : decoder_.units()) {
    const at::Tensor flat = at::empty({spec.numel()}, bf16).normal_(0.0, 0.02);
    Unit unit{.weights = parallel::parameter_views(flat, spec),
              .gradients = {},
              .gradient = at::empty({spec.numel()}, bf16).normal_(0.0, 1e-4),
              .optimizer = {}};
    unit.gradients = parallel::parameter_views(unit.gradient, spec);
    for (at::Tensor& weight : unit.weights) {
      if (weight.dim() == 1) weight.fill_(1.0);
    }
    if (with_optimizer) {
      const auto state = [&] { return at::zeros({spec.numel()}, bf16.dtype(at::kFloat)); };
      unit.optimizer = {.gradient = unit.gradient,
                        .master = flat.to(at::kFloat),
                        .exp_avg = state(),
                        .exp_avg_sq = state(),
                        .parameter = flat};
    }
    units_.push_back(std::move(unit));
  }
  const auto int64_on_gpu = at::TensorOptions().dtype(at::kLong).device(at::kCUDA);
  tokens_ = at::randint(config.vocab_size, {micro_batch, length}, int64_on_gpu);
  targets_ = at::randint(config.vocab_size, {micro_batch, length}, int64_on_gpu);
}

std::vector<Gradient> FullStep::gradients(size_t unit) const {
  std::vector<Gradient> made;
  for (const at::Tensor& view : units_[unit].gradients) made.emplace_back(view);
  return made;
}

at::Tensor FullStep::forward_backward() {
  const int64_t layers = decoder_.config().num_hidden_layers;
  const size_t head_unit = decoder_.head_unit();
  std::vector<LayerActivations> saved(static_cast<size_t>(layers));
  at::Tensor x = decoder_.embed_forward(weights(0), tokens_);
  for (int64_t i = 0; i < layers; ++i) {
    x = decoder_.layer_forward(weights(decoder_.layer_unit(i)), x, &saved[static_cast<size_t>(i)]);
  }
  std::vector<Gradient> embedding = gradients(0), head = gradients(head_unit);
  const bool tied = decoder_.tied_head();
  auto result = decoder_.head_forward_backward(weights(head_unit), tied ? weights(0)[0] : weights(head_unit)[1], x,
                                               targets_, 1.0, head, tied ? embedding[0] : head[1]);
  at::Tensor dx = std::move(result.dx);
  for (int64_t i = layers - 1; i >= 0; --i) {
    std::vector<Gradient> layer = gradients(decoder_.layer_unit(i));
    dx = decoder_.layer_backward(weights(decoder_.layer_unit(i)), dx, saved[static_cast<size_t>(i)], layer);
  }
  decoder_.embed_backward(dx, tokens_, embedding);
  return result.loss;
}

at::Tensor FullStep::sum_of_squares() const {
  at::Tensor sum = at::zeros({}, at::TensorOptions().dtype(at::kDouble).device(at::kCUDA));
  for (const Unit& unit : units_) sum.add_(parallel::sum_of_squares(unit.gradient));
  return sum;
}

void FullStep::update() {
  const parallel::AdamWUpdate scalars = parallel::adamw_update({}, 1e-5, ++updates_, 1.0);
  for (const Unit& unit : units_) parallel::adamw(unit.optimizer, scalars);
}

}  // namespace mpzero::bench
