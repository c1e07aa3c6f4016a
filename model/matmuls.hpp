#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "model/kernels/cublas_lt.hpp"

namespace mpzero::model {

// What tuning chose for one product, for reports. Seconds of one run, on a GPU that did nothing else.
struct TunedMatmul {
  MatmulShape shape;
  bool adds = false;      // out = product + a matrix: an addend, or what was in `out`
  std::string algorithm;  // LtMatmul::describe, or "ATen"
  double seconds = 0, aten_seconds = 0;
  double first_seconds = 0;  // of the one that cuBLASLt thinks fastest; infinite where it has none that runs
  size_t tried = 0;
  double tuning_seconds = 0;  // that the choice took
};

// Matrix products of activations with weights. In bf16 on a GPU each shape is tuned when it is first met: the device is
// let finish what it does, then ATen's product and those that cuBLASLt proposes are timed on the operands at hand, and
// the fastest is kept. Products that accumulate are tuned when their gradient is overwritten the next time, since
// timing spoils what was in it; until then they run as those that overwrite do. So tuning takes no more memory than
// the product itself.
// What is fastest may differ from run to run, and so may the last bits: under
// at::globalContext().deterministicAlgorithms nothing is timed, and what is taken is cuBLASLt's first proposal that
// repeats bit for bit. For other types and devices, and operands that are not aligned as cuBLASLt wants them, ATen's
// product is taken. Safe to use from several threads.
class Matmuls {
 public:
  // a weight^T: a [N, in], weight [out, in] -> [N, out].
  at::Tensor forward(const at::Tensor& a, const at::Tensor& weight);
  // The same plus `bias` [out] in each row, or plus `addend` [N, out]; rounded once on a GPU.
  at::Tensor forward_bias(const at::Tensor& a, const at::Tensor& weight, const at::Tensor& bias);
  at::Tensor forward_add(const at::Tensor& a, const at::Tensor& weight, const at::Tensor& addend);
  // dy weight: dy [N, out], weight [out, in] -> [N, in].
  at::Tensor data_gradient(const at::Tensor& dy, const at::Tensor& weight);
  // The same into a tensor.
  void data_gradient_out(at::Tensor& out, const at::Tensor& dy, const at::Tensor& weight);
  // out = dy^T x, or out += dy^T x: dy [N, out], x [N, in] of one type, -> [out, in] of that type or a wider one.
  void weight_gradient_out(at::Tensor& out, const at::Tensor& dy, const at::Tensor& x, bool accumulate = false);
  // The same as ATen does it.
  static void aten_weight_gradient_out(at::Tensor& out, const at::Tensor& dy, const at::Tensor& x, bool accumulate);

  // All that was tuned so far, in no particular order, and how long that took.
  std::vector<TunedMatmul> tuned() const;
  double tuning_seconds() const;

 private:
  enum class Layout : uint8_t { kAB, kABTransposed, kATransposedB };
  // out = a b with one of them transposed or none, plus the addend (a matrix, possibly `out`, or a vector for each row)
  // if it is defined.
  struct Operands {
    Layout layout;
    at::Tensor& out;
    const at::Tensor &a, &b, &addend;
    bool accumulates() const { return addend.is_same(out); }
    bool adds() const { return addend.defined() && addend.dim() == 2; }
  };
  struct Choice {
    std::optional<size_t> algorithm;  // of the product; none: ATen's
  };
  struct Product {
    LtMatmul matmul;
    std::array<std::optional<Choice>, 2> tuned;  // without and with a matrix that is added
    bool accumulates = false;                    // somebody accumulates into such a result
    Choice first() const { return {matmul.algorithms() > 0 ? std::optional<size_t>(0) : std::nullopt}; }
  };
  struct Key {
    MatmulShape shape;
    bool deterministic;
    int device;
    auto operator<=>(const Key&) const = default;
  };
  static void aten_multiply(const Operands& operands);
  void multiply(Layout layout, at::Tensor& out, const at::Tensor& a, const at::Tensor& b,
                const at::Tensor& addend = {});
  // Needs the lock.
  Choice choose(Product& product, const Key& key, const Operands& operands);
  Choice tune(const LtMatmul& matmul, const MatmulShape& shape, const Operands& operands);

  mutable std::mutex mutex_;
  std::map<Key, Product> products_;
  std::vector<TunedMatmul> tuned_;
};

}  // namespace mpzero::model
