#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <mutex>
#include <optional>
#include <utility>

#include "model/kernels/cublas_lt.hpp"

namespace mpzero::model {

// Matrix products of activations with weights. In bf16 on a GPU each shape is tuned when it is first met: what ATen
// does and the algorithms that cuBLASLt proposes are timed on the operands at hand, and the fastest is kept. What is
// fastest may differ from run to run, and so may the last bits: under at::globalContext().deterministicAlgorithms, and
// for other types and devices, ATen's product is taken. Safe to use from several threads.
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
  // out = dy^T x: dy [N, out], x [N, in] -> [out, in], all of one type.
  void weight_gradient_out(at::Tensor& out, const at::Tensor& dy, const at::Tensor& x);

 private:
  struct Tuned {
    LtMatmul matmul;
    std::optional<size_t> algorithm;  // of matmul; none: ATen's product
  };
  struct Key {
    MatmulShape shape;
    bool adds;
    int device;
    auto operator<=>(const Key&) const = default;
  };
  enum class Layout : uint8_t { kAB, kABTransposed, kATransposedB };
  static at::Tensor& aten_multiply(Layout layout, at::Tensor& out, const at::Tensor& a, const at::Tensor& b,
                                   const at::Tensor& addend);
  // out = a b with one of them transposed or none, plus the addend (a matrix, or a vector for each row) if it is
  // defined.
  void multiply(Layout layout, at::Tensor& out, const at::Tensor& a, const at::Tensor& b,
                const at::Tensor& addend = {});
  const Tuned& tuned(const MatmulShape& shape, Layout layout, at::Tensor& out, const at::Tensor& a, const at::Tensor& b,
                     const at::Tensor& addend);

  std::mutex mutex_;
  std::map<Key, Tuned> tuned_;
};

}  // namespace mpzero::model
