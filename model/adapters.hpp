#pragma once

#include <ATen/core/Tensor.h>

#include <span>

#include "model/architecture/lora.hpp"
#include "model/fp8/layer_product.hpp"
#include "model/gradient.hpp"
#include "model/kernels/dropout.hpp"
#include "model/matmuls.hpp"

namespace mpzero::model {

// LoRA adapters of one layer. N is the number of tokens. LayerAdapters never allocates a tensor with the shape of a
// frozen weight. For a matmul without adapters, all functions are no-ops and return undefined tensors.
class LayerAdapters {
 public:
  LayerAdapters() = default;
  // `layer`: weights of the layer, in the order of its unit. `layout`, `matmuls` and the weights must outlive this
  // object.
  LayerAdapters(const LoraLayout& layout, double scale, std::span<const at::Tensor> layer, Matmuls& matmuls,
                const Dropout& dropout = {})
      : layout_(&layout), scale_(scale), layer_(layer), matmuls_(&matmuls), input_dropout_(dropout) {}

  // Returns the dropout ID of the layer's first matmul. Each matmul has its own dropout ID.
  static uint32_t first_place(int64_t layer) { return 4 * static_cast<uint32_t>(layer); }

  bool adapts(LayerProduct product) const { return !of(product).empty(); }
  // Adds scale * x A^T B^T to y [N, out], with x [N, in]. Returns scale * x A^T [N, adapters * r], which the backward
  // pass reads. All functions apply dropout to x; the adapters of one matmul share the dropout mask.
  at::Tensor forward(LayerProduct product, const Operand& x, const at::Tensor& y) const;
  // Adds dz A to dx [N, in], with dz [N, adapters * r] = scale * dy B and dy [N, out]. Returns dz.
  at::Tensor data_gradient(LayerProduct product, const Operand& dy, at::Tensor& dx) const;
  // Adds dz^T x to dA and dy^T z to dB, with z from forward() and dz from data_gradient().
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
