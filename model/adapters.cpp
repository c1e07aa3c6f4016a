#include "model/adapters.hpp"

#include <ATen/ops/empty.h>

#include "model/operation/elementwise.hpp"
#include "model/rows.hpp"

namespace mpzero::model {
namespace {

// Returns the columns of `z` [N, adapters * r] that belong to adapter `index`.
at::Tensor part_of(const at::Tensor& z, size_t index, int64_t r) {
  return z.narrow(1, static_cast<int64_t>(index) * r, r);
}

}  // namespace

std::span<const LoraAdapter> LayerAdapters::of(LayerProduct product) const {
  if (layout_ == nullptr) return {};
  return (*layout_)[static_cast<size_t>(product)];
}

Dropout LayerAdapters::dropout_of(LayerProduct product) const {
  Dropout dropout = input_dropout_;
  dropout.place += static_cast<uint32_t>(product);
  return dropout;
}

at::Tensor LayerAdapters::joined_a(std::span<const LoraAdapter> adapters) const {
  return join_rows(layer_.subspan(adapters.front().a, adapters.size()));
}

at::Tensor LayerAdapters::forward(LayerProduct product, const Operand& x, const at::Tensor& y) const {
  const std::span<const LoraAdapter> adapters = of(product);
  if (adapters.empty()) return {};
  at::Tensor z = matmuls_->forward(after_dropout(x.tensor(), dropout_of(product)), joined_a(adapters));
  if (scale_ != 1) z.mul_(scale_);
  for (size_t i = 0; i < adapters.size(); ++i) {
    at::Tensor columns = y.narrow(1, adapters[i].begin, adapters[i].count);
    const at::Tensor& b = layer_[adapters[i].b];
    matmuls_->add_forward(columns, part_of(z, i, b.size(1)), b);
  }
  return z;
}

at::Tensor LayerAdapters::data_gradient(LayerProduct product, const Operand& dy, at::Tensor& dx) const {
  const std::span<const LoraAdapter> adapters = of(product);
  if (adapters.empty()) return {};
  const at::Tensor a = joined_a(adapters);
  at::Tensor dz = at::empty({dx.size(0), a.size(0)}, dx.options());
  for (size_t i = 0; i < adapters.size(); ++i) {
    const at::Tensor& b = layer_[adapters[i].b];
    at::Tensor part = part_of(dz, i, b.size(1));
    matmuls_->data_gradient_out(part, dy.tensor().narrow(1, adapters[i].begin, adapters[i].count), b);
  }
  if (scale_ != 1) dz.mul_(scale_);
  if (input_dropout_.rate == 0) {
    matmuls_->add_data_gradient(dx, dz, a);
  } else {
    const at::Tensor part = matmuls_->data_gradient(dz, a);
    dropout_(part, dropout_of(product));
    const OperationScope scope = elementwise(dx, 3);
    dx.add_(part);
  }
  return dz;
}

void LayerAdapters::weight_gradients(LayerProduct product, const Operand& dy, const at::Tensor& dz, const Operand& x,
                                     const at::Tensor& z, std::span<Gradient> gradients) const {
  const std::span<const LoraAdapter> adapters = of(product);
  if (adapters.empty()) return;
  add_matmul(gradients.subspan(adapters.front().a, adapters.size()), dz, after_dropout(x.tensor(), dropout_of(product)),
             matmuls_);
  for (size_t i = 0; i < adapters.size(); ++i) {
    const int64_t r = layer_[adapters[i].b].size(1);
    gradients[adapters[i].b].add_matmul(dy.tensor().narrow(1, adapters[i].begin, adapters[i].count), part_of(z, i, r),
                                        matmuls_);
  }
}

}  // namespace mpzero::model
