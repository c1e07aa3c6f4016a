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
    {.name = "x", .tensor = [](Of a) -> at::Tensor& { return a.x; }, .elements = hidden, .dropped_from = std::nullopt},
    {.name = "normed",
     .operand = [](Of a) -> Operand& { return a.normed; },
     .product = LayerProduct::kQkv,
     .elements = hidden,
     .dropped_from = Recompute::kSelective},
    {.name = "rstd", .tensor = [](Of a) -> at::Tensor& { return a.rstd; }, .elements = one, .wide = true},
    {.name = "qkv",
     .tensor = [](Of a) -> at::Tensor& { return a.qkv; },
     .elements = [](Config config, Layout) { return config.query_size() + 2 * config.key_value_size(); }},
    {.name = "qk",
     .tensor = [](Of a) -> at::Tensor& { return a.qk; },
     .elements = [](Config config, Layout layout) -> int64_t {
       return layout.has(LayerRole::kQueryNorm) ? config.query_size() + config.key_value_size() : 0;
     },
     .dropped_from = Recompute::kSelective},
    {.name = "attended",
     .tensor = [](Of a) -> at::Tensor& { return a.attended.out; },
     .elements = [](Config config, Layout) { return config.query_size(); }},
    {.name = "h", .tensor = [](Of a) -> at::Tensor& { return a.h; }, .elements = hidden},
    {.name = "h_normed",
     .operand = [](Of a) -> Operand& { return a.h_normed; },
     .product = LayerProduct::kGateUp,
     .elements = hidden,
     .dropped_from = Recompute::kSelective},
    {.name = "h_rstd", .tensor = [](Of a) -> at::Tensor& { return a.h_rstd; }, .elements = one, .wide = true},
    {.name = "gate_up",
     .tensor = [](Of a) -> at::Tensor& { return a.gate_up; },
     .elements = [](Config config, Layout) { return 2 * config.intermediate_size; }},
    {.name = "activated",
     .operand = [](Of a) -> Operand& { return a.activated; },
     .product = LayerProduct::kDown,
     .elements = [](Config config, Layout) { return config.intermediate_size; },
     .dropped_from = Recompute::kSelective},
}};

}  // namespace

std::span<const LayerActivation> layer_activations() { return kActivations; }

bool is_kept(const LayerActivation& activation, Recompute recompute) {
  return !activation.dropped_from || recompute < *activation.dropped_from;
}

int64_t bytes(const LayerActivation& activation, const ModelConfig& config, const LayerLayout& layout, int64_t tokens,
              at::ScalarType type, const Fp8Products& products, fp8::Scaling scaling) {
  if (activation.operand != nullptr && products[static_cast<size_t>(activation.product)]) {
    const int64_t width = activation.elements(config, layout);
    const int64_t scales = scaling == fp8::Scaling::kRowwise ? width : 1;
    return tokens * width + scales * static_cast<int64_t>(sizeof(float));
  }
  const at::ScalarType own = activation.wide ? accumulate_type(type) : type;
  return tokens * activation.elements(config, layout) * static_cast<int64_t>(c10::elementSize(own));
}

void LayerActivations::drop(Recompute recompute) {
  const bool qk_is_view = qk.defined() && qk.is_alias_of(qkv);
  at::Tensor view = qk;
  for (const LayerActivation& activation : kActivations) {
    if (is_kept(activation, recompute)) continue;
    if (activation.tensor != nullptr) activation.tensor(*this).reset();
    if (activation.operand != nullptr) activation.operand(*this).reset();
  }
  // A view of a saved tensor costs nothing.
  if (qk_is_view && qkv.defined()) qk = std::move(view);
  if (recompute != Recompute::kFull) return;
  attended.saved.clear();
  attended_maximum.reset();
}

std::vector<at::Tensor> LayerActivations::tensors() const {
  std::vector<at::Tensor> found = attended.saved;
  if (attended_maximum.defined()) found.push_back(attended_maximum);
  LayerActivations self = *this;
  for (const LayerActivation& activation : kActivations) {
    const std::vector<at::Tensor> own = activation.tensor != nullptr ? std::vector<at::Tensor>{activation.tensor(self)}
                                                                     : activation.operand(self).tensors();
    for (const at::Tensor& tensor : own) {
      if (tensor.defined()) found.push_back(tensor);
    }
  }
  return found;
}

}  // namespace mpzero::model
