#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace mpzero::model {

// What MatmulShape says of a product of two FP8 matrices. Both are contiguous along the inner dimension (b_transposed),
// and the product is multiplied by their scales.
struct Fp8Shape {
  at::ScalarType b_type = at::kFloat8_e4m3fn;  // MatmulShape::type is that of a
  bool rowwise = false;                        // a scale for each of out's rows and columns; else one for each matrix
  bool fast_accumulation = false;              // see fp8::FastAccumulation
  auto operator<=>(const Fp8Shape&) const = default;
};

// A product of two row-major matrices as cuBLASLt runs it: out = op(a) op(b), or that plus an addend of out's shape and
// type or, with `bias`, plus a vector [columns] that is added to each row; summed in fp32 and rounded once. out [rows,
// columns]; a is stored as [rows, inner], b as [inner, columns], or the other way round if transposed. The matrices
// have one type, bf16 or fp32, or with `fp8` those, and dense rows. The result and the vector have the same type;
// alternatively the result is fp32 and there is no vector.
struct MatmulShape {
  int64_t rows = 0, columns = 0, inner = 0;
  bool a_transposed = false, b_transposed = false;
  at::ScalarType type = at::kBFloat16;
  bool bias = false;
  at::ScalarType out_type = at::kBFloat16;
  // All addresses are multiples of this power of two, in bytes, from LtMatmul::kAlignment to kFullAlignment. Some
  // algorithms require more alignment than others.
  uint32_t alignment = 256;
  std::optional<Fp8Shape> fp8 = {};
  auto operator<=>(const MatmulShape&) const = default;
};

// By which FP8 operands are multiplied: fp32 on the GPU, as Fp8Shape::rowwise says.
struct LtScales {
  const float *a = nullptr, *b = nullptr;
};

class LtMatmul {
 public:
  // Required alignment in bytes of the addresses and rows of all matrices; more than kFullAlignment gains nothing.
  static constexpr uint32_t kAlignment = 16, kFullAlignment = 256;
  // The size of a product's workspace: what cuBLAS recommends for Hopper.
  static constexpr int64_t kWorkspaceBytes = 32 << 20;
  // Memory that cuBLAS keeps on Hopper once ATen has created its handle.
  static constexpr int64_t kHandleBytes = 32 << 20;

  enum class Candidates : uint8_t {
    kAll,         // with and without splits of the inner dimension, whatever the order of additions
    kRepeatable,  // only those that add the parts in a fixed order
  };

  // The algorithms that cuBLASLt proposes, the one it predicts to be fastest first; at most `most`, possibly none. The
  // same in every process on the same kind of device. For the current device.
  LtMatmul(const MatmulShape& shape, int most, Candidates candidates = Candidates::kAll);
  ~LtMatmul();
  LtMatmul(LtMatmul&& other) noexcept;

  size_t algorithms() const;
  // out = op(a) op(b) + addend, on the current stream. `addend`: with `bias` the vector, otherwise undefined or of
  // out's shape, possibly `out` itself. Throws c10::Error where cuBLASLt does.
  void run(const at::Tensor& a, const at::Tensor& b, const at::Tensor& addend, at::Tensor& out, size_t algorithm = 0,
           LtScales scales = {}) const;
  // In cuBLASLt's numbers: the algorithm, its tile and stages, and the number of splits of the inner dimension.
  std::string describe(size_t algorithm) const;

 private:
  class Handles;  // cuBLASLt's, whose header is for builds with GPU kernels alone
  std::unique_ptr<Handles> handles_;
};

}  // namespace mpzero::model
