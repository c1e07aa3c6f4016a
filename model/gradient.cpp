#include "model/gradient.hpp"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <iterator>
#include <vector>

#include "model/kernels/embedding.hpp"
#include "model/matmuls.hpp"
#include "model/operation/elementwise.hpp"
#include "model/rows.hpp"

namespace mpzero::model {

// The view is a meta tensor, which has a shape but no memory.
Gradient Gradient::unwanted(at::IntArrayRef shape) {
  return Gradient(at::empty(shape, at::TensorOptions().device(at::kMeta)));
}

void Gradient::add(const at::Tensor& gradient) {
  if (!wanted()) return;
  const double passes = (empty_ ? 1 : 2) + static_cast<double>(gradient.nbytes()) / static_cast<double>(view_.nbytes());
  const OperationScope scope = elementwise(view_, passes);
  if (std::exchange(empty_, false)) {
    view_.copy_(gradient);
  } else {
    view_.add_(gradient);
  }
}

void Gradient::add_row_sum(const at::Tensor& rows) {
  if (wanted()) row_sum(rows, view_, std::exchange(empty_, false));
}

void Gradient::add_matmul(const Operand& a, const Operand& b, Matmuls* matmuls) {
  if (!wanted()) return;
  const bool accumulate = !std::exchange(empty_, false);
  if (matmuls != nullptr) {
    matmuls->weight_gradient_out(view_, a, b, accumulate);
  } else {
    Matmuls::aten_weight_gradient_out(view_, a.tensor(), b.tensor(), accumulate);
  }
}

void Gradient::add_rows(const at::Tensor& rows, const at::Tensor& values) {
  if (!wanted()) return;
  if (std::exchange(empty_, false)) {
    const OperationScope scope("zero", [&] { return on_matrix(view_.scalar_type(), view_.size(0), view_.size(1), 1); });
    view_.zero_();
  }
  embedding_backward(view_, rows, values);
}

// Returns a view over contiguous gradients if all are wanted, and all or none are empty; otherwise an undefined tensor.
at::Tensor Gradient::join(std::span<const Gradient> gradients) {
  std::vector<at::Tensor> views;
  for (const Gradient& gradient : gradients) {
    if (gradient.empty_ != gradients.front().empty_ || !gradient.wanted()) return {};
    views.push_back(gradient.view_);
  }
  return rows_adjacent(views) ? join_rows(views) : at::Tensor();
}

template <typename Joined, typename Part>
void Gradient::add_group(std::span<Gradient> gradients, const Joined& add_joined, const Part& add_part) {
  if (const at::Tensor joined = join(gradients); joined.defined()) {
    Gradient all(joined, gradients.front().empty_);
    add_joined(all);
    for (Gradient& gradient : gradients) gradient.empty_ = false;
    return;
  }
  int64_t begin = 0;
  for (Gradient& gradient : gradients) {
    const int64_t rows = gradient.view_.size(0);
    if (gradient.wanted()) add_part(gradient, begin, rows);
    begin += rows;
  }
}

void RowSums::add(Gradient& gradient, const at::Tensor& rows) {
  if (!gradient.wanted()) return;
  sums_.push_back({rows, gradient.view_, std::exchange(gradient.empty_, false)});
}

void RowSums::add(std::span<Gradient> gradients, const at::Tensor& rows) {
  Gradient::add_group(
      gradients, [&](Gradient& all) { add(all, rows); },
      [&](Gradient& part, int64_t begin, int64_t count) { add(part, rows.narrow(1, begin, count)); });
}

void RowSums::run() {
  row_sums(sums_);
  sums_.clear();
}

PiecewiseGradients::PiecewiseGradients(std::span<Gradient> gradients, std::span<const size_t> summed)
    : gradients_(gradients), pieces_(gradients.begin(), gradients.end()) {
  const auto rounds = [&](size_t i) {
    return gradients[i].wanted() && gradients[i].view().scalar_type() == at::kBFloat16;
  };
  std::vector<size_t> wide;
  std::ranges::copy_if(summed, std::back_inserter(wide), rounds);
  if (wide.empty()) return;
  int64_t elements = 0, begin = 0;
  for (const size_t i : wide) elements += gradients[i].view().numel();
  const at::Tensor sums = at::empty({elements}, gradients[wide.front()].view().options().dtype(at::kFloat));
  for (const size_t i : wide) {
    const at::Tensor& view = gradients[i].view();
    const at::Tensor sum = sums.narrow(0, std::exchange(begin, begin + view.numel()), view.numel()).view(view.sizes());
    if (!gradients[i].empty()) {
      const OperationScope scope = elementwise(sum, 2);
      sum.copy_(view);
    }
    pieces_[i] = Gradient(sum, gradients[i].empty());
  }
}

void PiecewiseGradients::finish() {
  for (size_t i = 0; i < pieces_.size(); ++i) {
    if (pieces_[i].view().is_same(gradients_[i].view())) {
      gradients_[i] = pieces_[i];
    } else {
      gradients_[i].reset();
      gradients_[i].add(pieces_[i].view());
    }
  }
  pieces_.clear();
}

void add_matmul(std::span<Gradient> gradients, const Operand& a, const Operand& b, Matmuls* matmuls) {
  Gradient::add_group(
      gradients, [&](Gradient& all) { all.add_matmul(a, b, matmuls); },
      [&](Gradient& part, int64_t begin, int64_t count) {
        part.add_matmul(a.narrow_columns(begin, count), b, matmuls);
      });
}

}  // namespace mpzero::model
