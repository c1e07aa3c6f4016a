#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "model/fp8/cast.hpp"
#include "model/fp8/cast_watch.hpp"
#include "model/fp8/layer_product.hpp"
#include "model/fp8/operand.hpp"

namespace mpzero::model {

// Cache of the FP8 casts of weights in both forms, or only of their amax values. The cached values are valid until the
// weights change. Thread-safe.
class CastWeights {
 public:
  struct Key {
    int64_t layer;
    LayerProduct product;
    auto operator<=>(const Key&) const = default;
  };
  struct Kept {
    uint64_t version = 0;
    const void* address = nullptr;  // address of the weight
    Operand operand;
    at::Tensor maxima;  // see fp8::CastMatrix
  };
  // Returns the cast of `weight` [out, in]. Casts the weight again if `version` or the weight's address differs from
  // that in the last call with this key.
  Kept get(const Key& key, uint64_t version, const at::Tensor& weight, fp8::Scaling scaling);
  // Returns fp8::maximum of `weight` if it was cached for this version and address, otherwise an undefined tensor.
  at::Tensor maximum(const Key& key, uint64_t version, const at::Tensor& weight);
  void keep_maximum(const Key& key, uint64_t version, const at::Tensor& weight, at::Tensor maximum);

 private:
  std::mutex mutex_;
  std::map<Key, Kept> casts_, maxima_;
};

// Creates the operands of a layer's matmuls: FP8 casts, or the tensors themselves.
class LayerCasts {
 public:
  // Creates a LayerCasts without FP8, which returns all tensors unchanged.
  LayerCasts() = default;
  // `kept`: cache for this version of the weights, or null. `keeps_casts`: true to cache casts, false to cache only
  // amax values. `watch`: sampler of the casts, or null. `scales`: scales of weights that are already quantized; see
  // Weights. `adapted`: true if the weights have adapters and no gradients.
  LayerCasts(int64_t layer, Fp8Products products, const fp8::Recipe& recipe, CastWeights* kept, bool keeps_casts,
             uint64_t version, CastWatch* watch = nullptr, at::Tensor scales = {}, bool adapted = false)
      : layer_(layer),
        products_(products),
        recipe_(recipe),
        kept_(kept),
        keeps_casts_(keeps_casts),
        version_(version),
        watch_(watch),
        scales_(std::move(scales)),
        adapted_(adapted) {}

  bool is_fp8(LayerProduct product) const { return products_[static_cast<size_t>(product)]; }
  // Returns a zero-initialized scalar into which the GPU kernel that writes the operand accumulates its amax, or an
  // undefined tensor if the cast does not need the amax.
  at::Tensor maximum(LayerProduct product, at::Device device) const;
  // Returns the matmul's input x [N, in] as an operand. `maximum`: amax of x, if known. `found`: if not null, receives
  // the amax of x for reuse by another cast of x.
  Operand input(LayerProduct product, const at::Tensor& x, fp8::Forms forms, const at::Tensor& maximum = {},
                at::Tensor* found = nullptr) const;
  // Returns the gradient of the matmul's result, dy [N, out], as an operand.
  Operand gradient(LayerProduct product, const at::Tensor& dy, const at::Tensor& maximum = {}) const;
  // Returns `weight` [out, in], in bf16 or quantized to e4m3, as an operand with at least `forms`.
  Operand weight(LayerProduct product, const at::Tensor& weight, fp8::Forms forms) const;

 private:
  // Returns the operand of a weight that is already quantized.
  Operand of_codes(LayerProduct product, const at::Tensor& codes, fp8::Forms forms) const;
  Operand make(OperandKind kind, LayerProduct product, const at::Tensor& x, fp8::Format format, fp8::Forms forms,
               const at::Tensor& maximum = {}, at::Tensor* found = nullptr) const;

  int64_t layer_ = 0;
  Fp8Products products_{};
  fp8::Recipe recipe_;
  CastWeights* kept_ = nullptr;
  bool keeps_casts_ = false;
  uint64_t version_ = 0;
  CastWatch* watch_ = nullptr;
  at::Tensor scales_;
  bool adapted_ = false;
};

}  // namespace mpzero::model
