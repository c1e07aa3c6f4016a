#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "model/operation/operation.hpp"

namespace mpzero::model {

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
