#include "model/kernels/cross_entropy.hpp"

#include <ATen/ops/empty.h>
#include <ATen/ops/log_softmax.h>

#include "model/kernels/cpu/cpu.hpp"
#include "model/kernels/cuda.hpp"
#include "model/operation/accumulate_type.hpp"
#include "model/operation/launch.hpp"
#include "model/operation/operation.hpp"

namespace mpzero::model {
namespace {

// The kernels require contiguous logits, because the gradient overwrites them.
bool suits_cross_entropy(const at::Tensor& logits) { return has_kernels(logits) && logits.is_contiguous(); }

at::Tensor run(at::Tensor logits, const at::Tensor& targets, std::optional<double> scale, const at::Tensor& weights) {
  at::Tensor losses = at::empty({logits.size(0)}, logits.options().dtype(at::kFloat));
  launch(
      logits, [&] { cuda::cross_entropy(logits, targets, scale, weights, losses); },
      [&] { cpu::cross_entropy(logits, targets.contiguous(), scale, weights, losses); });
  return losses;
}

}  // namespace

at::Tensor cross_entropy_forward(const at::Tensor& logits, const at::Tensor& targets) {
  return suits_cross_entropy(logits) ? run(logits, targets, std::nullopt, {})
                                     : reference::cross_entropy_forward(logits, targets);
}

at::Tensor cross_entropy_forward_backward_(at::Tensor& logits, const at::Tensor& targets, double gradient_scale,
                                           const at::Tensor& weights) {
  const OperationScope scope("cross_entropy",
                             [&] { return on_matrix(logits.scalar_type(), logits.size(0), logits.size(1), 2); });
  return suits_cross_entropy(logits)
             ? run(logits, targets, gradient_scale, weights)
             : reference::cross_entropy_forward_backward_(logits, targets, gradient_scale, weights);
}

namespace reference {

at::Tensor cross_entropy_forward(const at::Tensor& logits, const at::Tensor& targets) {
  const at::Tensor log_p = at::log_softmax(logits, 1, accumulate_type(logits.scalar_type()));
  return log_p.gather(1, targets.unsqueeze(1)).squeeze(1).neg_();
}

at::Tensor cross_entropy_forward_backward_(at::Tensor& logits, const at::Tensor& targets, double gradient_scale,
                                           const at::Tensor& weights) {
  at::Tensor log_p = at::log_softmax(logits, 1, accumulate_type(logits.scalar_type()));
  const at::Tensor index = targets.unsqueeze(1);
  at::Tensor target_log_p = log_p.gather(1, index);
  at::Tensor gradient = log_p.exp_();
  gradient.scatter_(1, index, gradient.gather(1, index).sub_(1.0));
  gradient.mul_(gradient_scale);
  if (weights.defined()) gradient.mul_(weights.unsqueeze(1));
  logits.copy_(gradient);
  return target_log_p.squeeze(1).neg_();
}

}  // namespace reference
}  // namespace mpzero::model
