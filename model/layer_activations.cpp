#include "model/layer_activations.hpp"

#include <algorithm>
#include <iterator>
#include <span>
#include <utility>

namespace mpzero::model {

void LayerActivations::drop(Recompute recompute) {
  if (recompute == Recompute::kNone) return;
  if (keeps_input_only(recompute)) {
    LayerActivations kept;
    kept.mask = std::move(mask);
    kept.dropout = dropout;
    kept.tile = tile;
    kept.x = std::move(x);
    *this = std::move(kept);
    return;
  }
  normed.reset();
  h_normed.reset();
  activated.reset();
  exchanged = {};
  // Keeps qk if it is only a view of a saved tensor.
  if (qk.defined() && !qk.is_alias_of(qkv)) qk.reset();
}

std::vector<at::Tensor> LayerActivations::tensors() const {
  std::vector<at::Tensor> found = attended.saved;
  for (const at::Tensor& tensor :
       {x, rstd, q_rstd, k_rstd, qkv, qk, attended.out, attended_tokens, attended_maximum, attention_output.x,
        attention_output.rstd, h, h_rstd, gate_up, mlp_output.x, mlp_output.rstd}) {
    if (tensor.defined()) found.push_back(tensor);
  }
  for (const std::span<const at::Tensor> some : {std::span<const at::Tensor>(low_rank), {exchanged}}) {
    std::ranges::copy_if(some, std::back_inserter(found), [](const at::Tensor& tensor) { return tensor.defined(); });
  }
  for (const Operand* operand : {&normed, &h_normed, &activated}) {
    for (const at::Tensor& tensor : operand->tensors()) found.push_back(tensor);
  }
  return found;
}

}  // namespace mpzero::model
