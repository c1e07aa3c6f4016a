#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "model/operation/operation.hpp"

namespace mpzero::model {

// Dequantization scales of FP8 operands: fp32 on the GPU, shaped according to Fp8Shape::rowwise.
struct LtScales {
  const float *a = nullptr, *b = nullptr;
};

class LtMatmul {
 public:
  // Required alignment in bytes of the addresses and rows of all matrices; more than kFullAlignment gains nothing.
  static constexpr uint32_t kAlignment = 16, kFullAlignment = 256;
  // A product's workspace: the size that cuBLAS recommends for Hopper.
  static constexpr int64_t kWorkspaceBytes = 32 << 20;
  // Memory that cuBLAS keeps on Hopper once ATen has created its handle.
  static constexpr int64_t kHandleBytes = 32 << 20;

  enum class Candidates : uint8_t {
    kAll,         // with and without split-K, in any order of additions
    kRepeatable,  // only those that reduce split-K in a fixed order
  };

  // The algorithms that cuBLASLt proposes, the one it predicts to be fastest first; at most `most`, possibly none. The
  // same in every process on the same kind of device. For the current device.
  LtMatmul(const MatmulShape& shape, int most, Candidates candidates = Candidates::kAll);
  ~LtMatmul();
  LtMatmul(LtMatmul&& other) noexcept;

  size_t algorithms() const;
  // out = op(a) op(b) + addend, on the current stream. `addend`: with `bias` the vector, otherwise undefined or of
  // out's shape, possibly `out` itself. Throws c10::Error if cuBLASLt fails.
  void run(const at::Tensor& a, const at::Tensor& b, const at::Tensor& addend, at::Tensor& out, size_t algorithm = 0,
           LtScales scales = {}) const;
  // cuBLASLt's configuration of the algorithm: ids of algorithm, tile and stages, split-K and others.
  std::string describe(size_t algorithm) const;

 private:
  class Handles;  // hides cuBLASLt's header, which needs GPU kernels
  std::unique_ptr<Handles> handles_;
};

}  // namespace mpzero::model
