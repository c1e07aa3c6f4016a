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

// The result of tuning one product, for reports. Times are seconds per run on an otherwise idle GPU.
struct TunedMatmul {
  MatmulShape shape;
  bool adds = false;      // out = product + a matrix: an addend, or the previous content of `out`
  std::string algorithm;  // LtMatmul::describe, or "ATen"
  double seconds = 0, aten_seconds = 0;
  double first_seconds = 0;  // of cuBLASLt's first proposal; infinite if it has none or it does not run
  size_t tried = 0;
  double tuning_seconds = 0;  // spent on tuning
};

// Matrix products of activations with weights. In bf16 on a GPU each shape is tuned when it is first used: tuning waits
// for the device, times ATen's product and cuBLASLt's proposals on the actual operands, and keeps the fastest. Products
// that accumulate are tuned the next time their gradient is overwritten, because timing destroys the previous content;
// until then they run with the choice for products that overwrite. So tuning uses no more memory than the product
// itself.
// The fastest algorithm, and so the last bits, may differ from run to run. Under
// at::globalContext().deterministicAlgorithms nothing is timed: the first of cuBLASLt's proposals with reproducible
// bits is used. Other dtypes and devices, and operands without the alignment that cuBLASLt requires, use ATen's
// product. FP8 products are tuned likewise. On CPUs, operands are dequantized and multiplied in fp32; on GPUs without
// such a product in cuBLASLt, in bf16. Both represent the values exactly, so only the order of summation differs from
// FP8.
// Thread-safe.
class Matmuls {
 public:
  explicit Matmuls(fp8::FastAccumulation fast_accumulation = {}) : fast_accumulation_(fast_accumulation) {}

  // a weight^T: a [N, in], weight [out, in] -> [N, out]. Here and below, both operands are FP8 or neither is.
  at::Tensor forward(const Operand& a, const Operand& weight);
  // The same plus `bias` [out] in each row, or plus `addend` [N, out]; rounded once on a GPU.
  at::Tensor forward_bias(const Operand& a, const Operand& weight, const at::Tensor& bias);
  at::Tensor forward_add(const Operand& a, const Operand& weight, const at::Tensor& addend);
  // out [N, out] += a weight^T.
  void add_forward(at::Tensor& out, const Operand& a, const Operand& weight);
  // dy weight: dy [N, out], weight [out, in] -> [N, in].
  at::Tensor data_gradient(const Operand& dy, const Operand& weight);
  // The same, written to `out`.
  void data_gradient_out(at::Tensor& out, const Operand& dy, const Operand& weight);
  // out [N, in] += dy weight.
  void add_data_gradient(at::Tensor& out, const Operand& dy, const Operand& weight);
  // out = dy^T x, or out += dy^T x: dy [N, out], x [N, in] of one dtype, -> [out, in] of that dtype or a wider one.
  void weight_gradient_out(at::Tensor& out, const Operand& dy, const Operand& x, bool accumulate = false);
  // The same with ATen's product.
  static void aten_weight_gradient_out(at::Tensor& out, const at::Tensor& dy, const at::Tensor& x, bool accumulate);

  // All results of tuning so far, in no particular order, and the time spent.
  std::vector<TunedMatmul> tuned() const;
  double tuning_seconds() const;

 private:
  enum class Layout : uint8_t { kAB, kABTransposed, kATransposedB };
  // out = a b with at most one of them transposed, plus the addend (a matrix, possibly `out`, or a vector for each row)
  // if it is defined.
  struct Operands {
    Layout layout;
    at::Tensor& out;
    const at::Tensor &a, &b, &addend;
    // Dequantization scales; defined if a and b are FP8.
    const at::Tensor &a_scale, &b_scale;
    bool is_fp8() const { return a_scale.defined(); }
    bool accumulates() const { return addend.is_same(out); }
    bool adds() const { return addend.defined() && addend.dim() == 2; }
  };
  struct Choice {
    std::optional<size_t> algorithm;  // of the product; std::nullopt: ATen's
  };
  struct Product {
    LtMatmul matmul;
    std::array<std::optional<Choice>, 2> tuned;  // without and with an added matrix
    bool accumulates = false;                    // some caller accumulates into such a result
    // Bit i: algorithm i has failed to add a matrix, which cuBLASLt does not report in advance.
    std::shared_ptr<std::atomic<uint32_t>> cannot_add = std::make_shared<std::atomic<uint32_t>>(0);
    // Bit i: algorithm i has failed to run. For untuned products; tuning skips such algorithms.
    std::shared_ptr<std::atomic<uint32_t>> cannot_run = std::make_shared<std::atomic<uint32_t>>(0);
    Choice first() const { return {matmul.algorithms() > 0 ? std::optional<size_t>(0) : std::nullopt}; }
  };
  struct Key {
    MatmulShape shape;
    bool deterministic;
    int device;
    auto operator<=>(const Key&) const = default;
  };
  // cuBLASLt's first FP8 proposals may fail to run. Uses the first that runs, so equal runs use the same one.
  static void run_first(const Product& product, const Operands& operands);
  static void aten_multiply(const Operands& operands);
  static Operation operation_of(Layout layout, const at::Tensor& out, const at::Tensor& a, const at::Tensor& addend);
  // Runs the fastest algorithm on a GPU. `shape`: everything except sizes and alignment.
  void run_tuned(const Operands& operands, MatmulShape shape);
  static void run(const Product& product, const Operands& operands, size_t algorithm);
  void multiply(Layout layout, at::Tensor& out, const Operand& a, const Operand& b, const at::Tensor& addend = {});
  void multiply_tensors(Layout layout, at::Tensor& out, const at::Tensor& a, const at::Tensor& b,
                        const at::Tensor& addend);
  // out = a b^T + addend. `layout`: of the same product without FP8.
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
