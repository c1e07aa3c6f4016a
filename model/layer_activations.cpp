#include "model/layer_activations.hpp"

#include <array>

#include "model/kernels/accumulate_type.hpp"

namespace mpzero::model {
namespace {

using Config = const ModelConfig&;
using Layout = const LayerLayout&;
using Of = LayerActivations&;

int64_t hidden(Config config, Layout) { return config.hidden_size; }
int64_t one(Config, Layout) { return 1; }

constexpr std::array<LayerActivation, 11> kActivations{{
    {.name = "x", .of = [](Of a) -> at::Tensor& { return a.x; }, .elements = hidden, .dropped_from = std::nullopt},
    {.name = "normed",
     .of = [](Of a) -> at::Tensor& { return a.normed; },
     .elements = hidden,
     .dropped_from = Recompute::kSelective},
    {.name = "rstd", .of = [](Of a) -> at::Tensor& { return a.rstd; }, .elements = one, .wide = true},
    {.name = "qkv",
     .of = [](Of a) -> at::Tensor& { return a.qkv; },
     .elements = [](Config config, Layout) { return config.query_size() + 2 * config.key_value_size(); }},
    {.name = "qk",
     .of = [](Of a) -> at::Tensor& { return a.qk; },
     .elements = [](Config config, Layout layout) -> int64_t {
       return layout.has(LayerRole::kQueryNorm) ? config.query_size() + config.key_value_size() : 0;
     },
     .dropped_from = Recompute::kSelective},
    {.name = "attended",
     .of = [](Of a) -> at::Tensor& { return a.attended.out; },
     .elements = [](Config config, Layout) { return config.query_size(); }},
    {.name = "h", .of = [](Of a) -> at::Tensor& { return a.h; }, .elements = hidden},
    {.name = "h_normed",
     .of = [](Of a) -> at::Tensor& { return a.h_normed; },
     .elements = hidden,
     .dropped_from = Recompute::kSelective},
    {.name = "h_rstd", .of = [](Of a) -> at::Tensor& { return a.h_rstd; }, .elements = one, .wide = true},
    {.name = "gate_up",
     .of = [](Of a) -> at::Tensor& { return a.gate_up; },
     .elements = [](Config config, Layout) { return 2 * config.intermediate_size; }},
    {.name = "activated",
     .of = [](Of a) -> at::Tensor& { return a.activated; },
     .elements = [](Config config, Layout) { return config.intermediate_size; },
     .dropped_from = Recompute::kSelective},
}};

}  // namespace

std::span<const LayerActivation> layer_activations() { return kActivations; }

bool is_kept(const LayerActivation& activation, Recompute recompute) {
  return !activation.dropped_from || recompute < *activation.dropped_from;
}

int64_t bytes(const LayerActivation& activation, const ModelConfig& config, const LayerLayout& layout, int64_t tokens,
              at::ScalarType type) {
  const at::ScalarType own = activation.wide ? accumulate_type(type) : type;
  return tokens * activation.elements(config, layout) * static_cast<int64_t>(c10::elementSize(own));
}

void LayerActivations::drop(Recompute recompute) {
  const bool qk_is_view = qk.defined() && qk.is_alias_of(qkv);
  at::Tensor view = qk;
  for (const LayerActivation& activation : kActivations) {
    if (!is_kept(activation, recompute)) activation.of(*this).reset();
  }
  // A view of a saved tensor costs nothing.
  if (qk_is_view && qkv.defined()) qk = std::move(view);
  if (recompute == Recompute::kFull) attended.saved.clear();
}

std::vector<at::Tensor> LayerActivations::tensors() const {
  std::vector<at::Tensor> found = attended.saved;
  LayerActivations self = *this;
  for (const LayerActivation& activation : kActivations) {
    if (const at::Tensor& tensor = activation.of(self); tensor.defined()) found.push_back(tensor);
  }
  return found;
}

}  // namespace mpzero::model
