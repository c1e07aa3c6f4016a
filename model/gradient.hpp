#pragma once

#include <ATen/core/Tensor.h>

#include <span>
#include <utility>
#include <vector>

#include "model/fp8/operand.hpp"
#include "model/kernels/row_sum.hpp"

namespace mpzero::model {

class Matmuls;

// Gradient buffer of one weight: a contiguous view of a flat buffer, in the weight's dtype or fp32. The first
// contribution after reset() overwrites the view, and later contributions are added, so the buffer need not be zeroed.
// If the head and the embedding are tied, the head's gradient is added before the embedding's. All contributions are
// bitwise reproducible.
class Gradient {
 public:
  Gradient() = default;
  // `empty`: true if the view does not contain a gradient yet.
  explicit Gradient(at::Tensor view, bool empty = true) : view_(std::move(view)), empty_(empty) {}

  // Returns a placeholder for a frozen weight of this shape, for which no gradient is computed.
  static Gradient unwanted(at::IntArrayRef shape);
  bool wanted() const { return !view_.is_meta(); }

  // Makes the next contribution overwrite the view instead of being added.
  void reset() { empty_ = true; }

  // Adds a contribution `gradient`, which has the weight's shape and any floating-point dtype.
  void add(const at::Tensor& gradient);
  // Adds the sum over the rows of `rows` ([R, H], fp32 or fp64) to the gradient of a weight [H].
  void add_row_sum(const at::Tensor& rows);
  // Adds a^T b to the gradient of a weight [out, in], for a [N, out] and b [N, in]. `matmuls` tunes the matmul and is
  // required for FP8.
  void add_matmul(const Operand& a, const Operand& b, Matmuls* matmuls = nullptr);
  // Adds values[i] to row rows[i] of the gradient, for rows [N] int64 and values [N, in].
  void add_rows(const at::Tensor& rows, const at::Tensor& values);

  const at::Tensor& view() const { return view_; }
  bool empty() const { return empty_; }

 private:
  friend class RowSums;
  friend void add_matmul(std::span<Gradient> gradients, const Operand& a, const Operand& b, Matmuls* matmuls);
  static at::Tensor join(std::span<const Gradient> gradients);
  // Calls add_joined(Gradient&) once if the views of `gradients` are contiguous. Otherwise calls add_part(Gradient&,
  // first row, number of rows) for each gradient.
  template <typename Joined, typename Part>
  static void add_group(std::span<Gradient> gradients, const Joined& add_joined, const Part& add_part);

  at::Tensor view_;
  bool empty_ = true;
};

// Collects sums over rows for the gradients of different weights. run() computes all sums together, because launching
// one kernel per sum would take longer than the sums themselves. Callers must not read or update the gradients before
// run().
class RowSums {
 public:
  // Queues the sum over the rows of `rows` ([R, H], fp32 or fp64) for the gradient of a weight [H].
  void add(Gradient& gradient, const at::Tensor& rows);
  // Queues the sums of `rows` [R, sum of n_i] for several weights [n_i]. A single sum covers all gradients if their
  // views are adjacent in memory.
  void add(std::span<Gradient> gradients, const at::Tensor& rows);
  void run();

 private:
  std::vector<RowSum> sums_;
};

// Gradients that are accumulated in pieces, e.g. per chunk of tokens. bf16 gradients are summed in fp32 and rounded
// once.
class PiecewiseGradients {
 public:
  // `summed`: indices of the gradients that receive pieces. The fp32 sums of these gradients are adjacent, in the order
  // of `summed`.
  PiecewiseGradients(std::span<Gradient> gradients, std::span<const size_t> summed);
  // Returns the gradients to use in place of `gradients` until finish().
  std::span<Gradient> pieces() { return pieces_; }
  // Writes the sums to the gradients passed to the constructor, and frees the sums.
  void finish();

 private:
  std::span<Gradient> gradients_;
  std::vector<Gradient> pieces_;
};

// Adds a^T b to the gradients of several weights [out_i, in] that share their input, for a [N, sum of out_i] and b [N,
// in]. If the views of the gradients are contiguous, as within a unit, one matmul computes all of them; otherwise each
// gradient needs a separate matmul.
void add_matmul(std::span<Gradient> gradients, const Operand& a, const Operand& b, Matmuls* matmuls = nullptr);

}  // namespace mpzero::model
