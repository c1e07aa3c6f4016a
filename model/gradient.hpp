#pragma once

#include <ATen/core/Tensor.h>

namespace mpzero::model {

// Where the gradient of one weight is written: a view into a flat buffer. The first contribution after reset() overwrites
// what is there, later ones are added, so that nobody need clear the buffer first. (A tied head contributes before the
// embedding does.)
class Gradient {
 public:
  Gradient() = default;
  explicit Gradient(at::Tensor view) : view_(std::move(view)) {}

  // The next contribution overwrites again.
  void reset() { empty_ = true; }

  // += gradient, of the weight's shape, any floating type.
  void add(const at::Tensor& gradient);
  // += a^T b: a [N, out], b [N, in], the weight [out, in].
  void add_matmul(const at::Tensor& a, const at::Tensor& b);
  // weight[rows[i]] += values[i]: rows [N] int64, values [N, in]. Repeats bit for bit.
  void add_rows(const at::Tensor& rows, const at::Tensor& values);

  const at::Tensor& view() const { return view_; }

 private:
  at::Tensor view_;
  bool empty_ = true;
};

}  // namespace mpzero::model
