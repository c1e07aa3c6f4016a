#include "model/layer_activations.hpp"

#include <utility>

namespace mpzero::model {

std::vector<Recompute> recompute_levels(const ModelConfig& config, bool fp8) {
  using enum Recompute;
  if (config.t5) return {kNone, kSelective, kFull};
  if (fp8 || config.lora) return {kNone, kSelective, kAttention, kFull, kHostAttention, kHost};
  return {kRecomputes.begin(), kRecomputes.end()};
}

void LayerActivations::drop() {
  if (recompute == Recompute::kNone) return;
  const bool keeps_attended = keeps_attention(recompute);
  if (keeps_attended || keeps_input_only(recompute)) {
    LayerActivations kept;
    kept.recompute = recompute;
    kept.mask = std::move(mask);
    kept.dropout = dropout;
    kept.tile = tile;
    kept.x = std::move(x);
    if (keeps_attended) {
      kept.attended = std::move(attended);
      kept.attended_maximum = std::move(attended_maximum);
    }
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

}  // namespace mpzero::model
