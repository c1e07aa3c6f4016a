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

// Caches casts of weights, in both forms, or only their maxima, until the weights change. Thread-safe.
class CastWeights {
 public:
  struct Key {
    int64_t layer;
    LayerProduct product;
    auto operator<=>(const Key&) const = default;
  };
  struct Kept {
    uint64_t version = 0;
    const void* address = nullptr;  // of the weight
    Operand operand;
    at::Tensor maxima;  // as in fp8::CastMatrix
  };
  // The cast of `weight` [out, in]; recast if `version` or its address differs from the last call with this key.
  Kept get(const Key& key, uint64_t version, const at::Tensor& weight, fp8::Scaling scaling);
  // fp8::maximum of `weight`, if it was kept with this version and address; else undefined.
  at::Tensor maximum(const Key& key, uint64_t version, const at::Tensor& weight);
  void keep_maximum(const Key& key, uint64_t version, const at::Tensor& weight, at::Tensor maximum);

 private:
  std::mutex mutex_;
  std::map<Key, Kept> casts_, maxima_;
};

// Creates the operands of one layer's products: FP8 casts or the tensors themselves.
class LayerCasts {
 public:
  // No FP8.
  LayerCasts() = default;
  // `kept`: cache for this version of the weights; may be null. `keeps_casts`: caches casts, not only maxima. `watch`:
  // samples the casts; may be null. `scales`: of weights that are already quantized; see Weights. `adapted`: the
  // weights have adapters and no gradients.
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
  // A zero to pass as `maximum` to the GPU kernel that writes an operand, which raises it to the largest magnitude.
  // Undefined if the operand's cast does not read it.
  at::Tensor maximum(LayerProduct product, at::Device device) const;
  // x [N, in]: the product's input. `maximum`: of x, if known. `found`, if not null, receives the maximum of x if
  // another cast of x can use it.
  Operand input(LayerProduct product, const at::Tensor& x, fp8::Forms forms, const at::Tensor& maximum = {},
                at::Tensor* found = nullptr) const;
  // dy [N, out], the gradient of the product's result.
  Operand gradient(LayerProduct product, const at::Tensor& dy, const at::Tensor& maximum = {}) const;
  // weight [out, in]: bf16, or quantized to e4m3. The result has at least these forms.
  Operand weight(LayerProduct product, const at::Tensor& weight, fp8::Forms forms) const;

 private:
  // For a weight that is already quantized.
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
