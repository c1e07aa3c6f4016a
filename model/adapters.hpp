#pragma once

#include <ATen/core/Tensor.h>

#include <span>

#include "model/architecture/lora.hpp"
#include "model/fp8/layer_product.hpp"
#include "model/gradient.hpp"
#include "model/kernels/dropout.hpp"
#include "model/matmuls.hpp"

namespace mpzero::model {

// The LoRA adapters of one layer. Never allocates a frozen weight's gradient or another matrix of its shape. N: tokens.
// For a product without adapters, all calls are no-ops and return undefined tensors.
class LayerAdapters {
 public:
  LayerAdapters() = default;
  // `layer`: the weights of the layer's unit. All must outlive this object.
  LayerAdapters(const LoraLayout& layout, double scale, std::span<const at::Tensor> layer, Matmuls& matmuls,
                const Dropout& dropout = {})
      : layout_(&layout), scale_(scale), layer_(layer), matmuls_(&matmuls), input_dropout_(dropout) {}

  // Dropout place of a layer's first product; each product has its own.
  static uint32_t first_place(int64_t layer) { return 4 * static_cast<uint32_t>(layer); }

  bool adapts(LayerProduct product) const { return !of(product).empty(); }
  // y [N, out] += scale * x A^T B^T, x [N, in]. Returns scale * x A^T [N, adapters * r], which backward reads. Here and
  // below, x is read after dropout; the adapters of one product share its mask.
  at::Tensor forward(LayerProduct product, const Operand& x, const at::Tensor& y) const;
  // dx [N, in] += dz A. Returns dz [N, adapters * r] = scale * dy B. dy: [N, out].
  at::Tensor data_gradient(LayerProduct product, const Operand& dy, at::Tensor& dx) const;
  // dA += dz^T x, dB += dy^T z. `z`: from forward; `dz`: from data_gradient.
  void weight_gradients(LayerProduct product, const Operand& dy, const at::Tensor& dz, const Operand& x,
                        const at::Tensor& z, std::span<Gradient> gradients) const;

 private:
  std::span<const LoraAdapter> of(LayerProduct product) const;
  Dropout dropout_of(LayerProduct product) const;
  at::Tensor joined_a(std::span<const LoraAdapter> adapters) const;

  const LoraLayout* layout_ = nullptr;
  double scale_ = 1;
  std::span<const at::Tensor> layer_;
  Matmuls* matmuls_ = nullptr;
  Dropout input_dropout_;
};

}  // namespace mpzero::model
