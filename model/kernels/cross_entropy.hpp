#pragma once

#include <ATen/core/Tensor.h>

namespace mpzero::model {

// Returns -log softmax(logits)[target] of each row as [N] fp32 (fp64 for fp64 inputs), for logits [N, V] and targets
// [N] int64.
at::Tensor cross_entropy_forward(const at::Tensor& logits, const at::Tensor& targets);

// Returns the losses of cross_entropy_forward() and overwrites the logits with the gradient of gradient_scale * (sum of
// weight * loss): gradient_scale * weight * (softmax(logits) - one_hot(target)). If undefined, `weights` (fp32 [N])
// defaults to ones.
at::Tensor cross_entropy_forward_backward_(at::Tensor& logits, const at::Tensor& targets, double gradient_scale,
                                           const at::Tensor& weights = {});

// Reference implementations with ATen operators, for any device.
namespace reference {
at::Tensor cross_entropy_forward(const at::Tensor& logits, const at::Tensor& targets);
at::Tensor cross_entropy_forward_backward_(at::Tensor& logits, const at::Tensor& targets, double gradient_scale,
                                           const at::Tensor& weights = {});
}  // namespace reference

}  // namespace mpzero::model
