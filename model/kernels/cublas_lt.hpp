#pragma once

#include <ATen/core/Tensor.h>
#include <cublasLt.h>

#include <cstdint>
#include <memory>
#include <vector>

namespace mpzero::model {

// A product of two row-major matrices as cuBLASLt runs it: out = op(a) op(b), or that plus an addend of out's shape or,
// with `bias`, plus a vector [columns] that is added to each row; with fp32 sums rounded once. out [rows, columns]; a
// is stored [rows, inner], b [inner, columns], each the other way round where it is transposed. The matrices, the
// vector and the result have one type, bf16 or fp32, and dense rows.
struct MatmulShape {
  int64_t rows = 0, columns = 0, inner = 0;
  bool a_transposed = false, b_transposed = false;
  at::ScalarType type = at::kBFloat16;
  bool bias = false;
  auto operator<=>(const MatmulShape&) const = default;
};

class LtMatmul {
 public:
  // Bytes that the addresses and rows of all matrices must be multiples of.
  static constexpr uint32_t kAlignment = 16;
  // What a product works in while it runs: what cuBLAS recommends for Hopper.
  static constexpr int64_t kWorkspaceBytes = 32 << 20;

  // The algorithms that cuBLASLt proposes, the one it thinks fastest first; at most `candidates`. For the current
  // device. Throws c10::Error where there is none.
  LtMatmul(const MatmulShape& shape, int candidates);

  size_t algorithms() const { return algorithms_.size(); }
  // out = op(a) op(b) + addend, on the current stream; with `bias` the vector, else undefined or of out's shape.
  void run(const at::Tensor& a, const at::Tensor& b, const at::Tensor& addend, at::Tensor& out,
           size_t algorithm = 0) const;

 private:
  template <typename Handle, cublasStatus_t (*kDestroy)(Handle)>
  struct Destroy {
    void operator()(Handle handle) const { kDestroy(handle); }
  };
  template <typename Handle, cublasStatus_t (*kDestroy)(Handle)>
  using Owned = std::unique_ptr<std::remove_pointer_t<Handle>, Destroy<Handle, kDestroy>>;
  using Layout = Owned<cublasLtMatrixLayout_t, cublasLtMatrixLayoutDestroy>;
  static Layout layout(at::ScalarType type, int64_t rows, int64_t columns);

  bool bias_;
  Owned<cublasLtMatmulDesc_t, cublasLtMatmulDescDestroy> description_;
  Layout a_, b_, out_;
  std::vector<cublasLtMatmulAlgo_t> algorithms_;
};

}  // namespace mpzero::model
