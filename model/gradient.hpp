#pragma once

#include <ATen/core/Tensor.h>

#include <span>
#include <utility>
#include <vector>

#include "model/fp8/operand.hpp"
#include "model/kernels/row_sum.hpp"

namespace mpzero::model {

class Matmuls;

// The destination of one weight's gradient: a contiguous view of a flat buffer, in the weights' dtype or fp32. The
// first contribution after reset() overwrites the buffer and later ones are added, so the buffer need not be zeroed. (A
// tied head contributes before the embedding does.) The bits of all contributions are reproducible.
class Gradient {
 public:
  Gradient() = default;
  // `empty`: the view holds no gradient yet, so the first contribution overwrites it.
  explicit Gradient(at::Tensor view, bool empty = true) : view_(std::move(view)), empty_(empty) {}

  // For a frozen weight of this shape: no contributions are computed.
  static Gradient unwanted(at::IntArrayRef shape);
  bool wanted() const { return !view_.is_meta(); }

  // The next contribution overwrites the view again.
  void reset() { empty_ = true; }

  // += gradient, of the weight's shape and any floating dtype.
  void add(const at::Tensor& gradient);
  // += the sum over the rows of `rows`: [R, H] fp32 or fp64, the weight [H].
  void add_row_sum(const at::Tensor& rows);
  // += a^T b: a [N, out], b [N, in], the weight [out, in]. `matmuls`, if given, tunes the product;
  // FP8 needs it.
  void add_matmul(const Operand& a, const Operand& b, Matmuls* matmuls = nullptr);
  // weight[rows[i]] += values[i]: rows [N] int64, values [N, in].
  void add_rows(const at::Tensor& rows, const at::Tensor& values);

  const at::Tensor& view() const { return view_; }
  bool empty() const { return empty_; }

 private:
  friend class RowSums;
  friend void add_matmul(std::span<Gradient> gradients, const Operand& a, const Operand& b, Matmuls* matmuls);
  static at::Tensor join(std::span<const Gradient> gradients);
  // Calls add_joined(Gradient&) with one gradient over the views of the group if they can be joined, otherwise
  // add_part(Gradient&, first row, number of rows) for each.
  template <typename Joined, typename Part>
  static void add_group(std::span<Gradient> gradients, const Joined& add_joined, const Part& add_part);

  at::Tensor view_;
  bool empty_ = true;
};

// Collects sums over rows for the gradients of different weights; run() computes all of them together, because a
// separate kernel for each would cost more than its work. The gradients must not be read or added to before run().
class RowSums {
 public:
  // gradient += the sum over the rows of `rows`: [R, H] fp32 or fp64, the weight [H].
  void add(Gradient& gradient, const at::Tensor& rows);
  // The same for several weights [n_i] and `rows` [R, sum of n_i], in one sum if their views are adjacent.
  void add(std::span<Gradient> gradients, const at::Tensor& rows);
  void run();

 private:
  std::vector<RowSum> sums_;
};

// Gradients that are accumulated in pieces, e.g. one per chunk of tokens. bf16 gradients are summed in fp32 and rounded
// once.
class PiecewiseGradients {
 public:
  // `summed`: indices of the gradients that receive pieces. Their fp32 sums are adjacent, in this order.
  PiecewiseGradients(std::span<Gradient> gradients, std::span<const size_t> summed);
  // Replaces `gradients`, which must not be used before finish().
  std::span<Gradient> pieces() { return pieces_; }
  // Updates `gradients` and frees the sums.
  void finish();

 private:
  std::span<Gradient> gradients_;
  std::vector<Gradient> pieces_;
};

// += a^T b for several weights [out_i, in] that share their input: a [N, sum of out_i], b [N, in]. One matrix product
// if the views are contiguous in one buffer, as within a unit; otherwise one product per weight.
void add_matmul(std::span<Gradient> gradients, const Operand& a, const Operand& b, Matmuls* matmuls = nullptr);

}  // namespace mpzero::model
