// Final norm, output projection and loss, in chunks of tokens.
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include <algorithm>
#include <array>
#include <span>

#include "base/device/simulated.hpp"
#include "model/decoder.hpp"
#include "model/kernels/cross_entropy.hpp"
#include "model/kernels/rms_norm.hpp"
#include "model/matmuls.hpp"
#include "model/operation/accumulate_type.hpp"
#include "model/operation/elementwise.hpp"
#include "model/rows.hpp"

namespace mpzero::model {
namespace {

at::Tensor& weigh(at::Tensor& losses, const at::Tensor& loss_mask) {
  return loss_mask.defined() ? losses.mul_(loss_mask.reshape(-1)) : losses;
}

// Divides the head's input [N, H] instead of the logits, which are larger, or divides the gradient of the input.
void divide(at::Tensor& normed, double logits_scaling) {
  if (logits_scaling == 1) return;
  const OperationScope scope = elementwise(normed, 2);
  normed.div_(logits_scaling);
}

// Returns the final norm of x [B, T, H] as rows [N, H], divided by logits_scaling.
RmsNormOutput final_norm(const ModelConfig& config, Weights head, const at::Tensor& x) {
  RmsNormOutput norm = rms_norm_forward(x.reshape({-1, config.hidden_size}), head[0], config.rms_norm_eps);
  divide(norm.y, config.logits_scaling);
  return norm;
}

}  // namespace

at::Tensor Decoder::logits(Weights head, const at::Tensor& embedding, const at::Tensor& x) const {
  return matmuls_->forward(final_norm(config_, head, x).y, tied_head() ? embedding : head[1]);
}

int64_t Decoder::tokens_per_chunk(int64_t tokens, at::Device device) const {
  // On a GPU, each chunk reads the full output weight twice and updates its full gradient, so fewer chunks are faster.
  // Example: 16,384 tokens with a vocabulary of 151,936 on an H200 take 27.5 ms in 10 chunks, 26.8 ms in 5 chunks and
  // 25.8 ms in 2 chunks. On a CPU, 512 tokens with a vocabulary of 151,936 fit in one chunk.
  const int64_t automatic = uses_gpu_kernels(device) ? int64_t{5} << 28 : int64_t{1} << 27;
  const int64_t max_logits = options_.max_logits > 0 ? options_.max_logits : automatic;
  return rows_of_piece(tokens, std::max<int64_t>(1, max_logits / config_.vocab_size));
}

at::Tensor Decoder::head_loss(Weights head, const at::Tensor& output_weight, const at::Tensor& x,
                              const at::Tensor& targets, const at::Tensor& loss_mask) const {
  const at::Tensor normed = final_norm(config_, head, x).y;
  const at::Tensor flat_targets = targets.reshape(-1);
  const int64_t tokens = normed.size(0), chunk = tokens_per_chunk(tokens, x.device());
  at::Tensor losses = at::empty({tokens}, x.options().dtype(accumulate_type(x.scalar_type())));
  for (int64_t begin = 0; begin < tokens; begin += chunk) {
    const int64_t count = std::min(chunk, tokens - begin);
    const at::Tensor logits = matmuls_->forward(normed.narrow(0, begin, count), output_weight);
    losses.narrow(0, begin, count).copy_(cross_entropy_forward(logits, flat_targets.narrow(0, begin, count)));
  }
  return weigh(losses, loss_mask).mean(at::kDouble);
}

Decoder::HeadResult Decoder::head_forward_backward(Weights head, const at::Tensor& output_weight, const at::Tensor& x,
                                                   const at::Tensor& targets, double loss_scale,
                                                   Gradients head_gradients, Gradient& output_weight_gradient,
                                                   const at::Tensor& loss_mask, const Dropout& dropout) const {
  const at::Tensor rows = x.reshape({-1, config_.hidden_size});
  RmsNormOutput norm = final_norm(config_, head, rows);
  dropout_(norm.y, dropout);
  const at::Tensor flat_targets = targets.reshape(-1);
  const int64_t tokens = rows.size(0), chunk = tokens_per_chunk(tokens, x.device());
  at::Tensor losses = at::empty({tokens}, x.options().dtype(accumulate_type(x.scalar_type())));
  const at::Tensor weights = loss_mask.defined() ? loss_mask.reshape(-1) : at::Tensor();
  at::Tensor d_normed = at::empty_like(norm.y);
  constexpr std::array<size_t, 1> kOnly{0};
  PiecewiseGradients of_chunks(Gradients(&output_weight_gradient, 1), std::span(kOnly).first(chunk < tokens ? 1 : 0));
  for (int64_t begin = 0; begin < tokens; begin += chunk) {
    const int64_t count = std::min(chunk, tokens - begin);
    const at::Tensor normed = norm.y.narrow(0, begin, count);
    at::Tensor logits = matmuls_->forward(normed, output_weight);
    losses.narrow(0, begin, count)
        .copy_(cross_entropy_forward_backward_(logits, flat_targets.narrow(0, begin, count),
                                               loss_scale / static_cast<double>(tokens),
                                               weights.defined() ? weights.narrow(0, begin, count) : weights));
    at::Tensor d_chunk = d_normed.narrow(0, begin, count);
    matmuls_->data_gradient_out(d_chunk, logits, output_weight);
    of_chunks.pieces().front().add_matmul(logits, normed, matmuls_.get());
  }
  of_chunks.finish();
  divide(d_normed, config_.logits_scaling);
  dropout_(d_normed, dropout);
  const RmsNormGradients gradients = rms_norm_backward(d_normed, rows, head[0], norm.rstd, at::Tensor());
  head_gradients[0].add_row_sum(gradients.dweight_rows);
  return {weigh(losses, loss_mask).mean(), gradients.dx.view(x.sizes())};
}

}  // namespace mpzero::model
