#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "model/fp8/operand.hpp"
#include "model/fp8/recipe.hpp"
#include "model/kernels/cublas_lt.hpp"
#include "model/operation/operation.hpp"

namespace mpzero::model {

// Tuning result of one matmul, for reports. Times are seconds per run on an otherwise idle GPU.
struct TunedMatmul {
  MatmulShape shape;
  bool adds = false;      // true if a matrix is added: an addend or the previous content of `out`
  std::string algorithm;  // LtMatmul::describe, or "ATen"
  double seconds = 0, aten_seconds = 0;
  double first_seconds = 0;  // time of cuBLASLt's first heuristic result, or infinity if all results fail
  size_t tried = 0;
  double tuning_seconds = 0;  // total time spent on tuning
};

// Matmuls of activations with weights. In bf16 on a GPU, each shape is tuned at its first use. Tuning waits for the
// device, times ATen's matmul and cuBLASLt's heuristic results on the actual operands, and keeps the fastest algorithm.
// Timing destroys the previous content of the result. A matmul that accumulates into a gradient is therefore tuned when
// the gradient is next overwritten. Until then, the accumulating matmul uses the algorithm of the overwriting matmul.
// Tuning does not allocate more memory than the matmul itself. The fastest algorithm, and therefore the last bits of
// the result, may differ between runs. Under at::globalContext().deterministicAlgorithms, tuning is disabled, and
// cuBLASLt's first bitwise reproducible heuristic result is used. For other dtypes and devices, and for operands
// without the alignment that cuBLASLt requires, ATen's matmul is used. FP8 matmuls are tuned in the same way. On CPUs,
// FP8 operands are dequantized and multiplied in fp32. On GPUs, FP8 operands are dequantized to bf16 if cuBLASLt does
// not support the matmul. fp32 and bf16 represent FP8 values exactly, so only the order of summation differs.
// Thread-safe.
class Matmuls {
 public:
  explicit Matmuls(fp8::FastAccumulation fast_accumulation = {}) : fast_accumulation_(fast_accumulation) {}

  // Returns a * weight^T, [N, out], for a [N, in] and weight [out, in]. Adds `addend` if it is defined: a matrix
  // [N, out], or a vector [out] that is added to each row. On a GPU, the sum is rounded only once. In all functions,
  // either both operands are FP8 or neither is.
  at::Tensor forward(const Operand& a, const Operand& weight, const at::Tensor& addend = {});
  // Adds a * weight^T to out [N, out].
  void add_forward(at::Tensor& out, const Operand& a, const Operand& weight);
  // Returns dy * weight, [N, in], for dy [N, out] and weight [out, in].
  at::Tensor data_gradient(const Operand& dy, const Operand& weight);
  // Writes dy * weight to `out`.
  void data_gradient_out(at::Tensor& out, const Operand& dy, const Operand& weight);
  // Adds dy * weight to out [N, in].
  void add_data_gradient(at::Tensor& out, const Operand& dy, const Operand& weight);
  // Writes dy^T * x to out [out, in], or adds dy^T * x with `accumulate`. dy [N, out] and x [N, in] have one dtype; out
  // may have a wider dtype.
  void weight_gradient_out(at::Tensor& out, const Operand& dy, const Operand& x, bool accumulate = false);
  // Like weight_gradient_out(), but always uses ATen's matmul.
  static void aten_weight_gradient_out(at::Tensor& out, const at::Tensor& dy, const at::Tensor& x, bool accumulate);

  // Returns all tuning results so far, in unspecified order.
  std::vector<TunedMatmul> tuned() const;
  double tuning_seconds() const;

 private:
  enum class Layout : uint8_t { kAB, kABTransposed, kATransposedB };
  // Operands of out = a b + addend, with at most one of a and b transposed. The addend is undefined, a matrix, possibly
  // `out`, or a vector that is added to each row.
  struct Operands {
    Layout layout;
    at::Tensor& out;
    const at::Tensor &a, &b, &addend;
    // Dequantization scales; defined only if a and b are FP8.
    const at::Tensor &a_scale, &b_scale;
    bool is_fp8() const { return a_scale.defined(); }
    bool accumulates() const { return addend.is_same(out); }
    bool adds() const { return addend.defined() && addend.dim() == 2; }
  };
  struct Choice {
    std::optional<size_t> algorithm;  // cuBLASLt algorithm; std::nullopt: ATen's matmul
  };
  struct Product {
    LtMatmul matmul;
    std::array<std::optional<Choice>, 2> tuned;  // without and with an added matrix
    bool accumulates = false;                    // true if a caller accumulates into the result
    // Bit i is set if algorithm i has failed for a matmul with an added matrix; cuBLASLt does not report this
    // limitation in advance.
    std::shared_ptr<std::atomic<uint32_t>> cannot_add = std::make_shared<std::atomic<uint32_t>>(0);
    // Bit i is set if algorithm i has failed to run. Used only for untuned matmuls; tuning skips such algorithms.
    std::shared_ptr<std::atomic<uint32_t>> cannot_run = std::make_shared<std::atomic<uint32_t>>(0);
    Choice first() const { return {matmul.algorithms() > 0 ? std::optional<size_t>(0) : std::nullopt}; }
  };
  struct Key {
    MatmulShape shape;
    bool deterministic;
    int device;
    auto operator<=>(const Key&) const = default;
  };
  // Runs the first of cuBLASLt's FP8 heuristic results that does not fail, so that identical runs use the same
  // algorithm.
  static void run_first(const Product& product, const Operands& operands);
  static void aten_multiply(const Operands& operands);
  static Operation operation_of(Layout layout, const at::Tensor& out, const at::Tensor& a, const at::Tensor& addend);
  // Runs the matmul with the fastest algorithm on a GPU. `shape`: all properties of the matmul except sizes and
  // alignment.
  void run_tuned(const Operands& operands, MatmulShape shape);
  static void run(const Product& product, const Operands& operands, size_t algorithm);
  void multiply(Layout layout, at::Tensor& out, const Operand& a, const Operand& b, const at::Tensor& addend = {});
  void multiply_tensors(Layout layout, at::Tensor& out, const at::Tensor& a, const at::Tensor& b,
                        const at::Tensor& addend);
  // Computes out = a b^T + addend. `layout`: layout of the same matmul without FP8.
  void multiply_fp8(Layout layout, at::Tensor& out, const fp8::Matrix& a, const fp8::Matrix& b,
                    const at::Tensor& addend);
  // The caller must hold mutex_.
  Choice choose(Product& product, const Key& key, const Operands& operands);
  Choice tune(const Product& product, const MatmulShape& shape, const Operands& operands);

  const fp8::FastAccumulation fast_accumulation_;
  mutable std::mutex mutex_;
  std::map<Key, Product> products_;
  std::vector<TunedMatmul> tuned_;
};

}  // namespace mpzero::model
